import { decodeMessage } from '../protocol/messages';
import type { Hello, Status } from '../protocol/messages.generated';
import { ProtocolError } from '../protocol/protocol-error';
import type {
  CoursesRequest,
  ScalarsRequest,
  StatisticsRequest,
  StreamRequest,
  TrendRequest
} from '../protocol/requests.generated';
import type { ViewOptions } from '../protocol/views.generated';
import { boundedText, isWhole } from '../protocol/texts';
import { coursesOf, type ICourses } from './courses';
import type { IRunsApiOptions, AskOf, IQuestion } from './rest';
import { ClientError, asArray, asObject, badAnswer, jsonOf, Rest, runPath } from './rest';
import { MomentsApi, toldApart, type IRunReader, type IStreamAnswer, type ITensorIndex } from './run-reader';

/** How the demo training of the Jupyter server stands. */
export type DemoState =
  /** The administrator does not allow it, or this server knows nothing of it. */
  | { readonly kind: 'off' }
  /** Not started, stopped, or trained to its end. */
  | { readonly kind: 'idle' }
  /** Its process runs; its run is not live yet. */
  | { readonly kind: 'starting' }
  | { readonly kind: 'running'; readonly run: string }
  /** It ended by itself with an error; `message` is the last line that it wrote. */
  | { readonly kind: 'failed'; readonly message: string };

/** What is asked of the demo training. */
export type DemoAction = 'look' | 'start' | 'stop';

/** Read the server's answer; an answer that says nothing known is `off`. */
function demoStateOf(answer: Readonly<Record<string, unknown>>): DemoState {
  const { state, run, message } = answer;
  switch (state) {
    case 'idle':
    case 'starting':
      return { kind: state };
    case 'running':
      return { kind: 'running', run: String(run) };
    case 'failed':
      return { kind: 'failed', message: String(message) };
    default:
      return { kind: 'off' };
  }
}

const MOST_LETTERS = 500;
const MOST_WARNINGS = 100;
const MOST_NOTES = 10_000;
const MOST_TAGS = 20;
const MOST_SETTINGS = 200;
/** The last second of which JavaScript makes a date. */
const MOST_SECONDS = 8.64e12;

/** One run as the Jupyter server lists it. */
export interface IRunEntry {
  readonly id: string;
  readonly name: string;
  /** Its name without what tells its rank or node; absent of files of statistics. */
  readonly job?: string;
  /** Where others have the same name: when it began, or whatever else tells it from them. */
  readonly apart?: string;
  /** `gone`: its training or its hub went without saying that it had ended. */
  readonly state: 'live' | 'recorded' | 'gone';
  /** Seconds since the epoch. */
  readonly started: number;
  /** Seconds since the epoch, or null while it runs. */
  readonly ended: number | null;
  /** Whether the training of a live run went without saying that it had ended. */
  readonly stopped?: true;
  /** Newest step that the server knows of. */
  readonly step: number | null;
  /** Run folder relative to the server's root, or null. */
  readonly folder: string | null;
  /** A tree of raw-moment files, which has statistics only; absent for a run. */
  readonly kind?: 'statistics';
  /** What its recording takes on the disk; absent where there is none. */
  readonly bytes?: number;
  /** What a person wrote about it. */
  readonly notes?: string;
  readonly tags?: readonly string[];
}

/** What a person writes to a run; what is absent stays as it is. */
export type RunChanges = Partial<Readonly<Record<'name' | 'notes', string>>> & {
  readonly tags?: readonly string[];
};

export type RunSetting = string | number | boolean;

/** What the server says of a recording beside its entry in the list. */
export interface IRunSummary {
  /** The loss that came last, by the name under which it was sent; null where there is none. */
  readonly loss: { readonly name: string; readonly step: number; readonly value: number } | null;
  /** By dotted name. */
  readonly settings: ReadonlyMap<string, RunSetting>;
}

export interface IRunList {
  readonly runs: readonly IRunEntry[];
  /** Sentences on folders that cannot be read, so that runs in them are left out. */
  readonly warnings: readonly string[];
}

/** A hub of a peer, which the Jupyter server follows and translates. */
export interface IForeignHub {
  readonly dialect: '3606' | 'T1' | 'T2' | 'inference';
  readonly prompts?: readonly string[];
}

/** A recorded run's description. */
export interface IRunDetail {
  readonly hello: Hello;
  readonly status: Status;
  /** Streams whose file was cut short. */
  readonly truncated: readonly string[];
  readonly kind?: 'statistics';
}

/** A file that the server made. */
export interface IReportFile {
  readonly name: string;
  readonly content: Blob;
}

/**
 * The Jupyter server's endpoints, as protocol/README.md lists them. Every method rejects with a
 * `ClientError`.
 */
export class RunsApi implements IRunReader {
  constructor(options: IRunsApiOptions) {
    this.rest = new Rest(options);
    this.moments = new MomentsApi(this.rest);
  }

  readonly moments: MomentsApi;

  /** All runs, newest first. */
  async list(signal?: AbortSignal): Promise<IRunList> {
    return listOf(await this.rest.json('runs', { signal }));
  }

  /** A recorded run's description, or a live run's entry in the list. */
  async get(id: string, signal?: AbortSignal): Promise<IRunDetail | IRunEntry> {
    return runAnswerOf(await this.rest.json(runPath(id), { signal }));
  }

  asker<R extends object, A>({ name, read }: IQuestion<R, A>): AskOf<R, A> {
    return async (id, request, signal) =>
      read(await jsonOf(await this.rest.ask(`${runPath(id)}/${name}`, request, signal)));
  }

  async describe(id: string, changes: RunChanges): Promise<IRunEntry> {
    return entryOf(await this.rest.json(runPath(id), { method: 'PATCH', body: JSON.stringify(changes) }));
  }

  /** Delete a recording. Whether its folder is gone: what others put there stays. */
  async remove(id: string): Promise<boolean> {
    const { gone } = asObject(await this.rest.json(runPath(id), { method: 'DELETE' }));
    return gone !== false;
  }

  async summaries(signal?: AbortSignal): Promise<ReadonlyMap<string, IRunSummary>> {
    const { runs } = asObject(await this.rest.json('summaries', { signal }));
    return new Map(Object.entries(asObject(runs)).map(([id, each]) => [id, summaryOf(each)]));
  }

  async courses(request: CoursesRequest, signal?: AbortSignal): Promise<ICourses> {
    return coursesOf(await jsonOf(await this.rest.ask('courses', request, signal)));
  }

  async index(id: string, signal?: AbortSignal): Promise<readonly ITensorIndex[]> {
    const { tensors } = asObject(await this.rest.json(`${runPath(id)}/index`, { signal }));
    return asArray(tensors).map(tensorIndexOf);
  }

  async stream(
    id: string,
    stream: string,
    request: StreamRequest,
    signal?: AbortSignal
  ): Promise<IStreamAnswer> {
    const response = await this.rest.ask(
      `${runPath(id)}/streams/${encodeURIComponent(stream)}`,
      request,
      signal
    );
    const every = Number(response.headers.get('X-Megalens-Sampled-Every') ?? 1);
    return {
      bytes: new Uint8Array(await response.arrayBuffer()),
      sampledEvery: Number.isInteger(every) && every > 0 ? every : 1
    };
  }

  async tensorLines(id: string, request: TrendRequest, signal?: AbortSignal): Promise<Uint8Array> {
    const response = await this.rest.ask(`${runPath(id)}/lines/tensors`, request, signal);
    return new Uint8Array(await response.arrayBuffer());
  }

  async scalarLines(id: string, request: ScalarsRequest, signal?: AbortSignal): Promise<Uint8Array> {
    const response = await this.rest.ask(`${runPath(id)}/lines/scalars`, request, signal);
    return new Uint8Array(await response.arrayBuffer());
  }

  /** Make a report of some views. */
  async report(
    id: string,
    request: { format: 'html' | 'ipynb'; views: readonly ViewOptions[]; title?: string; language?: string },
    signal?: AbortSignal
  ): Promise<IReportFile> {
    const response = await this.rest.ask(`${runPath(id)}/report`, request, signal);
    const [, name] = /filename="([^"/\\]+)"/.exec(response.headers.get('Content-Disposition') ?? '') ?? [];
    return { name: name ?? `${id}.${request.format}`, content: await response.blob() };
  }

  /**
   * Have the server connect to a hub elsewhere.
   *
   * @param address - `ws://host:port`, which the administrator must have allowed.
   * @param token - The hub's token; it stays in the server's memory. A peer's hub has none.
   * @param foreign - What a peer's hub speaks; absent for one of ours.
   */
  async connectHub(address: string, token: string, foreign: IForeignHub | null = null): Promise<IRunEntry> {
    const body = foreign === null ? { address, token } : { address, ...foreign };
    return entryOf(await jsonOf(await this.rest.ask('hubs', body)));
  }

  /**
   * Open a tree of raw-moment files below the server's root.
   *
   * @returns One entry for each run in it, which are listed from then on, and what was left out.
   */
  async openStatistics(path: string, signal?: AbortSignal): Promise<IRunList> {
    const request: StatisticsRequest = { path };
    return listOf(await jsonOf(await this.rest.ask('statistics', request, signal)));
  }

  /** Look at, start or stop the demo training. A server that knows none says that it is off. */
  async demo(action: DemoAction): Promise<DemoState> {
    const inits: Record<DemoAction, RequestInit> = {
      look: {},
      start: { method: 'POST', body: '{}' },
      stop: { method: 'DELETE' }
    };
    return demoStateOf(asObject(await this.rest.json('demo', inits[action])));
  }

  private readonly rest: Rest;
}

/** Read what is said of one run: a recorded one's description, or a live one's entry in the list. */
export function runAnswerOf(answer: unknown): IRunDetail | IRunEntry {
  const fields = asObject(answer);
  return 'hello' in fields ? runDetailOf(fields) : entryOf(fields);
}

export function runDetailOf(answer: Record<string, unknown>): IRunDetail {
  try {
    return {
      hello: decodeMessage(JSON.stringify(answer.hello), ['hello']),
      status: decodeMessage(JSON.stringify(answer.status), ['status']),
      truncated: asArray(answer.truncated).map(stream => boundedText(stream, MOST_LETTERS)),
      ...kindOf(answer.kind)
    };
  } catch (error) {
    throw error instanceof ProtocolError ? badAnswer(`a run that cannot be read: ${error.message}`) : error;
  }
}

export function tensorIndexOf(value: unknown): ITensorIndex {
  const { flag, phase, pass, parts, layers, ranks, steps } = asObject(value);
  return {
    flag: boundedText(flag, MOST_LETTERS),
    phase: boundedText(phase, MOST_LETTERS),
    pass: pass === 'backward' ? 'backward' : 'forward',
    parts: asArray(parts).map(part => boundedText(part, MOST_LETTERS)),
    layers: wholeNumbers(layers),
    ranks: wholeNumbers(ranks),
    steps: wholeNumbers(steps)
  };
}

/** Read a list of runs. An entry that cannot be read is left out and named: it hides no other run. */
export function listOf(value: unknown): IRunList {
  const { runs, warnings } = asObject(value);
  const texts = asArray(warnings ?? []).slice(0, MOST_WARNINGS);
  const sentences = texts.map(each => boundedText(each, MOST_LETTERS));
  const entries = asArray(runs).flatMap((each): IRunEntry[] => {
    try {
      return [entryOf(each)];
    } catch (error) {
      if (error instanceof ClientError && sentences.length <= MOST_WARNINGS) {
        sentences.push(error.message);
      }
      return [];
    }
  });
  // Of two runs of one id only one could be opened.
  const known = new Map(entries.reverse().map(entry => [entry.id, entry]));
  const listed = [...known.values()].reverse();
  const apart = toldApart(listed);
  return {
    runs: listed.map(entry => {
      const suffix = apart.get(entry.id);
      return suffix === undefined ? entry : { ...entry, apart: suffix };
    }),
    warnings: sentences
  };
}

/** Whether a text can be the id of a run: short, whole, and so fit for an address. */
export function isRunId(value: unknown): value is string {
  return typeof value === 'string' && value !== '' && value.length <= MOST_LETTERS && isWhole(value);
}

function entryOf(value: unknown): IRunEntry {
  const { id, name, job, state, started, ended, stopped, step, folder, kind, bytes, notes, tags } =
    asObject(value);
  if (!isRunId(id) || (state !== 'live' && state !== 'recorded' && state !== 'gone')) {
    throw badAnswer('a run without an id or with an unknown state');
  }
  return {
    id,
    name: boundedText(name, MOST_LETTERS) || id,
    state,
    started: timeOf(started) ?? 0,
    ended: timeOf(ended),
    step: Number.isSafeInteger(step) ? Number(step) : null,
    folder: typeof folder === 'string' ? folder : null,
    ...kindOf(kind),
    ...(typeof job === 'string' ? { job: boundedText(job, MOST_LETTERS) } : {}),
    ...(stopped === true ? { stopped } : {}),
    ...(Number.isSafeInteger(bytes) ? { bytes: Number(bytes) } : {}),
    ...(typeof notes === 'string' ? { notes: boundedText(notes, MOST_NOTES) } : {}),
    ...(Array.isArray(tags)
      ? { tags: tags.slice(0, MOST_TAGS).map(tag => boundedText(tag, MOST_LETTERS)) }
      : {})
  };
}

function summaryOf(value: unknown): IRunSummary {
  const { loss, settings } = asObject(value);
  const found = new Map<string, RunSetting>();
  for (const [name, each] of Object.entries(asObject(settings)).slice(0, MOST_SETTINGS)) {
    if (typeof each === 'string') {
      found.set(boundedText(name, MOST_LETTERS), boundedText(each, MOST_LETTERS));
    } else if (typeof each === 'number' || typeof each === 'boolean') {
      found.set(boundedText(name, MOST_LETTERS), each);
    }
  }
  return { loss: loss === null ? null : lossOf(asObject(loss)), settings: found };
}

function lossOf({ name, step, value }: Record<string, unknown>): IRunSummary['loss'] {
  return Number.isSafeInteger(step)
    ? { name: boundedText(name, MOST_LETTERS), step: Number(step), value: figureOf(value) }
    : null;
}

/** A number that may not be finite, and is text then, as Python writes it. */
function figureOf(value: unknown): number {
  const infinite = value === 'inf' ? Infinity : value === '-inf' ? -Infinity : NaN;
  return typeof value === 'number' ? value : infinite;
}

function wholeNumbers(value: unknown): number[] {
  return asArray(value).filter((each): each is number => Number.isSafeInteger(each));
}

/** Seconds since the epoch that a date can be made of; null for everything else. */
function timeOf(value: unknown): number | null {
  return typeof value === 'number' && Math.abs(value) <= MOST_SECONDS ? value : null;
}

function kindOf(kind: unknown): { kind?: 'statistics' } {
  return kind === 'statistics' ? { kind } : {};
}

import { type AskOf, type IQuestion, asArray, asObject, badAnswer, jsonOf, runPath, type Rest } from './rest';
import type { Pass } from '../protocol/messages.generated';
import type {
  ScalarsRequest,
  StreamRequest,
  TrendRequest,
  MomentGroupsRequest,
  MomentRowsRequest
} from '../protocol/requests.generated';
import { MOMENT_STATS } from '../protocol/moment-statistics';
import type { MeasuredTensors } from '../protocol/views.generated';

/** Most letters of an address that a sentence names. */
const MOST_ADDRESS = 200;

export interface IMomentIndex {
  /** Changes whenever there is more. */
  readonly version: string;
  readonly stats: readonly {
    readonly stat: MeasuredTensors;
    readonly rows: number;
    /** First and last step that has rows. */
    readonly first: number;
    readonly last: number;
    /** Number of steps that have rows. */
    readonly steps: number;
  }[];
  /** Every tensor's name; rows refer to them by index. Names are only ever added at the end. */
  readonly names: readonly string[];
  /** Whether steps are known as samples too. */
  readonly samples: boolean;
  /** Sentences about what is superseded, left out or unreadable. */
  readonly warnings: readonly string[];
}

/** A Dask cluster that answers the server's questions about recordings. */
export interface IReadBy {
  readonly address: string;
  readonly workers: number;
}

export interface IMomentsIndex extends IMomentIndex {
  readonly readBy?: IReadBy;
  /** Index of the first of `names`: those before it are known to who named a version. */
  readonly namesFrom: number;
}

/** Instead of an answer: the files are being read for the first time. In bytes. */
export interface IReading {
  readonly kind: 'reading';
  readonly done: number;
  readonly total: number;
}

/** Rows, as an Arrow IPC stream. */
export interface IMomentsRows {
  readonly kind: 'rows';
  readonly bytes: Uint8Array;
}

/** Groups, as an Arrow IPC stream, and how many groups and steps there were. */
export interface IMomentsGroups {
  readonly kind: 'groups';
  readonly bytes: Uint8Array;
  readonly groups: number;
  readonly steps: number;
  /** Of how many tasks a cluster made it; 0 or absent where none did. */
  readonly tasks?: number;
}

export interface IMomentsReader {
  /**
   * What there is.
   *
   * @param since - The version that is known; the answer then comes when there is more.
   * @param wait - How long to wait for it, seconds.
   * @returns Null where there is no more than was known.
   */
  index(
    id: string,
    since: string | null,
    wait: number,
    signal?: AbortSignal
  ): Promise<IMomentsIndex | IReading | null>;
  rows(id: string, request: MomentRowsRequest, signal?: AbortSignal): Promise<IMomentsRows | IReading>;
  groups(id: string, request: MomentGroupsRequest, signal?: AbortSignal): Promise<IMomentsGroups | IReading>;
  /** How many tasks of how many a cluster has done of the question that it is answering. */
  tasks?(id: string, signal?: AbortSignal): Promise<readonly [done: number, of: number]>;
}

/** The endpoints of a run's statistics. Every method rejects with a `ClientError`. */
export class MomentsApi implements IMomentsReader {
  constructor(private readonly rest: Rest) {}

  async index(
    id: string,
    since: string | null,
    wait: number,
    signal?: AbortSignal
  ): Promise<IMomentsIndex | IReading | null> {
    const query = new URLSearchParams({ wait: String(wait), ...(since === null ? {} : { since }) });
    const response = await this.rest.request(`${runPath(id)}/moments?${query}`, { signal }, 304);
    if (response.status === 304) {
      return null;
    }
    return response.status === 202 ? readingOf(response) : momentsIndexOf(await jsonOf(response));
  }

  async rows(id: string, request: MomentRowsRequest, signal?: AbortSignal): Promise<IMomentsRows | IReading> {
    const response = await this.rest.ask(`${runPath(id)}/moments/rows`, request, signal);
    return response.status === 202
      ? readingOf(response)
      : { kind: 'rows', bytes: new Uint8Array(await response.arrayBuffer()) };
  }

  async groups(
    id: string,
    request: MomentGroupsRequest,
    signal?: AbortSignal
  ): Promise<IMomentsGroups | IReading> {
    const response = await this.rest.ask(`${runPath(id)}/moments/groups`, request, signal);
    if (response.status === 202) {
      return readingOf(response);
    }
    const header = (name: string): number => Number(response.headers.get(name) ?? 0);
    return {
      kind: 'groups',
      bytes: new Uint8Array(await response.arrayBuffer()),
      groups: header('X-Megalens-Groups'),
      steps: header('X-Megalens-Steps'),
      tasks: header('X-Megalens-Tasks')
    };
  }

  async tasks(id: string, signal?: AbortSignal): Promise<readonly [done: number, of: number]> {
    const response = await this.rest.request(`${runPath(id)}/moments/tasks`, { signal });
    const { done, of } = asObject(await jsonOf(response));
    return [Number(done) || 0, Number(of) || 0];
  }
}

async function readingOf(response: Response): Promise<IReading> {
  const { done, total } = asObject(asObject(await jsonOf(response)).progress);
  return { kind: 'reading', done: Number(done) || 0, total: Number(total) || 0 };
}

function readByOf(value: unknown): IReadBy {
  const { address, workers } = asObject(value);
  return { address: String(address).slice(0, MOST_ADDRESS), workers: Number(workers) || 0 };
}

export function momentsIndexOf(value: unknown): IMomentsIndex {
  const { version, stats, names_from, names, samples, warnings, read_by } = asObject(value);
  if (typeof version !== 'string') {
    throw badAnswer('statistics without a version');
  }
  return {
    version,
    stats: asArray(stats).flatMap(entry => {
      const { stat: name, rows, first, last, steps } = asObject(entry);
      // What a later version measures is left out.
      const stat = MOMENT_STATS.find(known => known === name);
      const numbers = { rows: Number(rows), first: Number(first), last: Number(last), steps: Number(steps) };
      return stat === undefined ? [] : [{ stat, ...numbers }];
    }),
    namesFrom: Number(names_from) || 0,
    names: asArray(names).map(String),
    samples: samples === true,
    warnings: asArray(warnings).map(String),
    ...(read_by === undefined ? {} : { readBy: readByOf(read_by) })
  };
}

interface INamed {
  readonly id: string;
  readonly name: string;
  /** Seconds since the epoch. */
  readonly started: number;
}

/** From short to long: the first one by which runs of one name differ is used. */
const MINUTE = {
  day: 'numeric',
  month: 'short',
  hour: '2-digit',
  minute: '2-digit',
  hourCycle: 'h23'
} as const;
const FORMATS: readonly Intl.DateTimeFormatOptions[] = [
  MINUTE,
  { ...MINUTE, second: '2-digit' },
  { ...MINUTE, second: '2-digit', year: 'numeric' }
];

export function startText(
  { started }: Pick<INamed, 'started'>,
  format: Intl.DateTimeFormatOptions = MINUTE
): string {
  return new Date(started * 1000).toLocaleString(undefined, format);
}

/**
 * Tell runs of one name apart: by when they began, or by their id where that is the same.
 * @returns What to put beside the name, by id; nothing for a run whose name no other one has.
 */
export function toldApart(runs: readonly INamed[]): ReadonlyMap<string, string> {
  const named = new Map<string, INamed[]>();
  for (const run of runs) {
    named.set(run.name, [...(named.get(run.name) ?? []), run]);
  }
  const found = new Map<string, string>();
  for (const same of named.values()) {
    if (same.length > 1) {
      const format = FORMATS.find(
        each => new Set(same.map(run => startText(run, each))).size === same.length
      );
      same.forEach(run => found.set(run.id, format === undefined ? run.id : startText(run, format)));
    }
  }
  return found;
}

/** A run's name, and what tells it from others of that name. */
export function runLabel(run: { readonly name: string; readonly apart?: string }): string {
  return run.apart === undefined ? run.name : `${run.name} · ${run.apart}`;
}

export interface IStreamAnswer {
  /** An Arrow IPC stream with the stream's schema, or its columns that were asked for. */
  readonly bytes: Uint8Array;
  /** 1, or n when only every n-th step fitted. */
  readonly sampledEvery: number;
}

export interface ITensorIndex {
  readonly flag: string;
  readonly phase: string;
  readonly pass: Pass;
  readonly parts: readonly string[];
  readonly layers: readonly number[];
  /** Ranks that sent rows, ascending. */
  readonly ranks: readonly number[];
  /** Ascending. */
  readonly steps: readonly number[];
}

/**
 * Reads the rows of a recorded run: the Jupyter server by its endpoints, the kernel through the engine's
 * pipe, a report from the rows that its file holds. Every method rejects with a `ClientError`.
 */
export interface IRunReader {
  index(id: string, signal?: AbortSignal): Promise<readonly ITensorIndex[]>;
  stream(id: string, stream: string, request: StreamRequest, signal?: AbortSignal): Promise<IStreamAnswer>;
  /**
   * Lines of a trend, as many points as were wanted, as an Arrow IPC stream that says in its schema what is
   * known of them: protocol/README.md.
   */
  tensorLines(id: string, request: TrendRequest, signal?: AbortSignal): Promise<Uint8Array>;
  /** The same of scalars. */
  scalarLines(id: string, request: ScalarsRequest, signal?: AbortSignal): Promise<Uint8Array>;
  readonly moments: IMomentsReader;
  /** How a question of an instrument is asked; absent, or undefined, where nobody here answers it. */
  asker?<R extends object, A>(question: IQuestion<R, A>): AskOf<R, A> | undefined;
}

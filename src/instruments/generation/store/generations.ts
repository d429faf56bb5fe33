import MESSAGES_SCHEMA from '#protocol/messages.schema.json';
import type { GenerateRequest } from '../../../protocol/messages.generated';
import { schemaCheck } from '../../../protocol/schema-check';
import { readableStreams } from '../../../protocol/streams';
import { boundedText, isWhole } from '../../../protocol/texts';
import { RowCells } from './generation-rows';
import type { IStreamRows } from '../../../store/row-store';
import type { IRunSource } from '../../../store/source';

export {
  LOCATION_COLUMNS as PLACE_COLUMNS,
  readToken,
  readTokens,
  tokensOf,
  type ICandidate,
  type IToken
} from './generated-tokens';

/** How a generation stands, as the stream `generations` says. */
export const GENERATION_STATES = ['queued', 'running', 'finished', 'cancelled', 'failed'] as const;

export type GenerationState = (typeof GENERATION_STATES)[number];

/** A generation as it stands now: see the stream `generations` in `protocol/streams.json`. */
export interface IGeneration {
  /** From 1. */
  readonly generation: number;
  readonly state: GenerationState;
  /** Seconds since the epoch at which it came into this state. */
  readonly time: number;
  /** Place in the queue, from 1; 0 when it does not wait. */
  readonly place: number;
  /** Of one under a perturbation the number of its clean control; 0 where there is none. */
  readonly control: number;
  /** Sequences of the batch; 0 before it runs. */
  readonly sequences: number;
  /** Positions of the longest prompt; 0 before it runs. */
  readonly padded: number;
  /** First and last step whose tensors are of it; -1 before it runs. */
  readonly firstStep: number;
  readonly lastStep: number;
  /** Tokens written so far, over all sequences. */
  readonly tokens: number;
  /** Seconds that it ran so far. */
  readonly seconds: number;
  /** What was asked for; null where unknown or unreadable. Parsed on first use. */
  readonly request: GenerateRequest | null;
  /** Why it failed, or what was done otherwise than asked; may be empty. */
  readonly message: string;
}

type Tables = Pick<IRunSource, 'hello' | 'table'>;

const MOST_REQUEST = 16 << 20;

/** The generations of a run by number, each as it stands now. */
export async function readGenerations(source: Tables, signal?: AbortSignal): Promise<IGeneration[]> {
  return readableStreams(source.hello?.streams).has('generations')
    ? generationsOf(await source.table('generations', {}, signal))
    : [];
}

/** The generations of rows of their stream. Rows without a number are left out. */
export function generationsOf(rows: IStreamRows): IGeneration[] {
  const cells = new RowCells(rows);
  const newest = new Map<number, number>();
  const requests = new Map<number, string>();
  for (let at = 0; at < rows.length; at += 1) {
    const generation = cells.count('generation', at);
    const before = newest.get(generation);
    if (generation < 1) {
      continue;
    }
    // Only the first row of each has it.
    if (cells.text('request', at) !== '') {
      requests.set(generation, cells.text('request', at));
    }
    if (before === undefined || !(cells.number('time', at) < cells.number('time', before))) {
      newest.set(generation, at);
    }
  }
  return [...newest]
    .sort(([a], [b]) => a - b)
    .map(([generation, at]) => {
      const request = lazily(() => requestOf(requests.get(generation) ?? ''));
      return {
        generation,
        // A state of a later version has ended somehow.
        state: GENERATION_STATES.find(each => each === cells.text('state', at)) ?? 'finished',
        time: cells.number('time', at),
        place: Math.max(0, cells.count('place', at)),
        control: Math.max(0, cells.count('control', at)),
        sequences: Math.max(0, cells.count('sequences', at)),
        padded: Math.max(0, cells.count('padded', at)),
        firstStep: cells.count('first_step', at),
        lastStep: cells.count('last_step', at),
        tokens: Math.max(0, cells.count('tokens', at)),
        seconds: cells.number('seconds', at),
        get request() {
          return request();
        },
        message: boundedText(cells.text('message', at), 4000)
      };
    });
}

/** The generation of this number, or the newest (of a pair the perturbed one); undefined if absent. */
export function generationOf(
  generations: readonly IGeneration[],
  requested: number | null
): IGeneration | undefined {
  if (requested !== null) {
    return generations.find(({ generation }) => generation === requested);
  }
  const newest = generations[generations.length - 1];
  return generations.find(({ control }) => newest && control === newest.generation) ?? newest;
}

/** The clean control of a generation under a perturbation; undefined where there is none. */
export function controlOf(
  generations: readonly IGeneration[],
  { control }: Pick<IGeneration, 'control'>
): IGeneration | undefined {
  return control > 0 ? generations.find(({ generation }) => generation === control) : undefined;
}

export const isUnderWay = ({ state }: Pick<IGeneration, 'state'>): boolean =>
  state === 'queued' || state === 'running';

/** The prompt of each sequence; samples of one prompt are neighbours. Empty if the request is unknown. */
export function sequencesOf({
  request,
  sequences
}: Pick<IGeneration, 'request' | 'sequences'>): { prompt: string; sample: number; samples: number }[] {
  const { prompts = [], samples = 1 } = request ?? {};
  const all = prompts.flatMap(prompt =>
    Array.from({ length: samples }, (_, sample) => ({ prompt, sample, samples }))
  );
  return sequences > 0 ? all.slice(0, sequences) : all;
}

/** A request as it was kept; null where it is none. */
function requestOf(text: string): GenerateRequest | null {
  if (text === '' || text.length > MOST_REQUEST) {
    return null;
  }
  try {
    const request: unknown = JSON.parse(text);
    return isWhole(request) && checkRequest()(request) === null ? (request as GenerateRequest) : null;
  } catch {
    return null;
  }
}

const checkRequest = lazily(() =>
  schemaCheck({ $ref: '#/$defs/GenerateRequest' }, MESSAGES_SCHEMA.$defs ?? {})
);

function lazily<T>(make: () => T): () => T {
  let made: { value: T } | null = null;
  return () => (made ??= { value: make() }).value;
}

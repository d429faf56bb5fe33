import type { IMomentsReader } from './moments-api';
import type { AskOf, IQuestion } from './rest';
import type { Pass } from '../protocol/messages.generated';

/** Which rows of a recorded stream to read; absent members match everything. */
export interface IStreamQuery {
  flag?: string;
  part?: string;
  phase?: string;
  pass?: Pass;
  /** One rank, or of each layer the lowest rank that has it. */
  rank?: number | 'lowest';
  /** Of each layer only the newest row, up to `last`, whose compression error was measured. */
  measured?: boolean;
  /** Blocks that rows of `Peaks` have at most along an axis. */
  peaks?: number;
  /** Range text such as `0-3,7`. */
  layers?: string;
  first?: number;
  last?: number;
  /** Columns that the stream's policy lets be asked for, and what they must equal. */
  where?: Readonly<Record<string, string | number>>;
  /** Only these columns, and the step; all when absent. */
  columns?: readonly string[];
  /** Bytes that the answer may have; the server thins steps out to fit. */
  limitBytes?: number;
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

export type LinesStream = 'tensors' | 'scalars';

/** Which lines are asked for; what is absent is not sent. */
export type ILinesQuery = Readonly<Record<string, string | number | undefined>>;

export function textsOf(query: ILinesQuery): Record<string, string> {
  const there = Object.entries(query).filter(([, value]) => value !== undefined);
  return Object.fromEntries(there.map(([name, value]) => [name, String(value)]));
}

/**
 * Reads the rows of a recorded run: the Jupyter server by its endpoints, the kernel through the engine's
 * pipe, a report from the rows that its file holds. Every method rejects with a `ClientError`.
 */
export interface IRunReader {
  index(id: string, signal?: AbortSignal): Promise<readonly ITensorIndex[]>;
  stream(id: string, stream: string, query?: IStreamQuery, signal?: AbortSignal): Promise<IStreamAnswer>;
  /**
   * Lines of a trend or of scalars, as many points as were wanted, as an Arrow IPC stream that says in its
   * schema what is known of them: protocol/README.md.
   */
  lines(id: string, stream: LinesStream, query: ILinesQuery, signal?: AbortSignal): Promise<Uint8Array>;
  readonly moments: IMomentsReader;
  /** How a question of an instrument is asked; absent, or undefined, where nobody here answers it. */
  asker?<R extends object, A>(question: IQuestion<R, A>): AskOf<R, A> | undefined;
}

import type { IMomentsReader } from './moments-api';
import type { AskOf, IQuestion } from './rest';
import type { Pass } from '../protocol/messages.generated';
import type { ScalarsRequest, StreamRequest, TrendRequest } from '../protocol/requests.generated';

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

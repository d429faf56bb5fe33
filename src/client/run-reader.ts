import type {
  IMomentsGroups,
  IMomentsGroupsRequest,
  IMomentsIndex,
  IMomentsRows,
  IMomentsRowsRequest,
  IReading
} from './moments-api';
import type { AskOf, IQuestion } from './question';
import type { IStreamAnswer, IStreamQuery, ITensorIndex } from './runs-api';

/** What there are lines of. */
export type LinesStream = 'tensors' | 'scalars';

/** Which lines are asked for; what is absent is not sent. */
export type ILinesQuery = Readonly<Record<string, string | number | undefined>>;

/** The members of a question that are there, as texts. */
export function textsOf(query: ILinesQuery): Record<string, string> {
  const there = Object.entries(query).filter(([, value]) => value !== undefined);
  return Object.fromEntries(there.map(([name, value]) => [name, String(value)]));
}

/**
 * Reads the rows of a recorded run: the Jupyter server by its endpoints, the kernel through the engine's pipe, a report from the rows
 * that its file holds. Every method rejects with a `ClientError`.
 */
export interface IRunReader {
  /** What the run has, by flag, phase and pass. */
  index(id: string, signal?: AbortSignal): Promise<readonly ITensorIndex[]>;
  /** Rows of a stream. */
  stream(id: string, stream: string, query?: IStreamQuery, signal?: AbortSignal): Promise<IStreamAnswer>;
  /**
   * Lines of a trend or of scalars, as many points as were wanted, as an Arrow IPC stream that says in its schema what is known of them:
   * protocol/README.md.
   */
  lines(id: string, stream: LinesStream, query: ILinesQuery, signal?: AbortSignal): Promise<Uint8Array>;
  readonly moments: IMomentsReader;
  /** How a question of an instrument is asked; absent, or undefined, where nobody here answers it. */
  asker?<R extends object, A>(question: IQuestion<R, A>): AskOf<R, A> | undefined;
}

/** Reads the stream `moments` of a recorded run. */
export interface IMomentsReader {
  /**
   * What there is.
   *
   * @param id - Run.
   * @param since - The version that is known; the answer then comes when there is more.
   * @param wait - How long to wait for it, seconds.
   * @param signal - Stops waiting.
   * @returns Null where there is no more than was known.
   */
  index(
    id: string,
    since: string | null,
    wait: number,
    signal?: AbortSignal
  ): Promise<IMomentsIndex | IReading | null>;
  /** Rows, as an Arrow IPC stream. */
  rows(id: string, request: IMomentsRowsRequest, signal?: AbortSignal): Promise<IMomentsRows | IReading>;
  /** Groups, as an Arrow IPC stream, and how many groups and steps there were. */
  groups(
    id: string,
    request: IMomentsGroupsRequest,
    signal?: AbortSignal
  ): Promise<IMomentsGroups | IReading>;
}

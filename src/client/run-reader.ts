import type {
  IMomentsGroups,
  IMomentsGroupsRequest,
  IMomentsIndex,
  IMomentsRows,
  IMomentsRowsRequest,
  IReading
} from './moments-api';
import type { IStreamAnswer, IStreamQuery, ITensorIndex } from './runs-api';

/**
 * Reads the rows of a recorded run: the Jupyter server by its endpoints, the kernel through the engine's pipe, a report from the rows
 * that its file holds. Every method rejects with a `ClientError`.
 */
export interface IRunReader {
  /** What the run has, by flag, phase and pass. */
  index(id: string, signal?: AbortSignal): Promise<readonly ITensorIndex[]>;
  /** Rows of a stream. */
  stream(id: string, stream: string, query?: IStreamQuery, signal?: AbortSignal): Promise<IStreamAnswer>;
  readonly moments: IMomentsReader;
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

/**
 * A question of an instrument about the recording of a run, asked and answered as JSON. The Jupyter server answers it below the run's
 * endpoint, the engine's host under the same name, and a report's file where the question was asked while the file was made.
 */
export interface IQuestion<R extends object, A> {
  readonly name: string;
  /** Whether the engine's host answers it too. */
  readonly inEngine: boolean;
  /**
   * Check an answer; null where the recording has nothing of it.
   *
   * @throws ClientError `bad-answer`.
   */
  read(answer: unknown): A | null;
  /** How a report's file holds what was answered; absent where it holds none. */
  readonly held?: IHeldForm<R, A>;
}

/** How a report's file holds answers to a question. */
export interface IHeldForm<R, A> {
  /** What is asked while the file is made, so that the answer serves whoever reads it. */
  asked?(request: R): R;
  /** The part of an answer that a file has room for. */
  cut?(answer: A): A;
  /** What of a request the answer depends on: requests of one key have one answer. */
  key(request: R): string;
  /** Read an answer again that was written as JSON text; `JSON.parse` when absent. */
  parse?(text: string): A | null;
}

/** Asks the one question; null where nothing is recorded of it. */
export type Ask<R extends object, A> = (request: R, signal?: AbortSignal) => Promise<A | null>;

/** The same of one of several runs, by its id. */
export type AskOf<R extends object, A> = (id: string, request: R, signal?: AbortSignal) => Promise<A | null>;

import { ClientError } from '../client/client-error';
import { ProtocolError } from '../protocol/protocol-error';

/** Why a source could not answer. */
export type StoreErrorCode =
  /** The source or the manager was disposed of. */
  | 'disposed'
  /** A recorded run cannot be changed. */
  | 'recorded'
  /** The run has no such stream, or it is answered by a method of its own. */
  | 'no-stream'
  /** There is no such run any more. */
  | 'gone'
  /** The server did not answer or refused; `cause` says more. */
  | 'unavailable'
  /** What came cannot be read. */
  | 'unreadable';

/** The one error class of the store room: what happened and what to do. */
export class StoreError extends Error {
  constructor(
    readonly code: StoreErrorCode,
    message: string,
    options: ErrorOptions = {}
  ) {
    super(message, options);
  }

  override readonly name = 'StoreError';
}

/** What a source rejects with when it is asked for rows of a stream that it cannot give. */
export function noStream(stream: string, known: Iterable<string>): StoreError {
  const names = [...known];
  return new StoreError(
    'no-stream',
    names.includes(stream)
      ? `The rows of ${stream} are asked for by a method of their own.`
      : `This run has no stream ${stream}. It has ${names.join(', ')}.`
  );
}

/**
 * What a source rejects with instead of an error of the rooms below it.
 *
 * @param error - What was caught. An aborted signal's reason, and what is nobody's mistake to tell, stay as they are.
 * @param run - The run's name.
 */
export function storeError(error: unknown, run: string): unknown {
  if (error instanceof ClientError) {
    return new StoreError(error.status === 404 ? 'gone' : 'unavailable', error.message, { cause: error });
  }
  if (error instanceof ProtocolError) {
    const message = `The recording of ${run} could not be read: ${error.message}`;
    return new StoreError('unreadable', message, { cause: error });
  }
  return error;
}

/** Why a source could not answer. */
export type StoreErrorCode =
  /** The source or the manager was disposed of. */
  | 'disposed'
  /** A recorded run cannot be changed. */
  | 'recorded'
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

/** Why the client could not do what was asked. */
export type ClientErrorCode =
  /** The link broke, or there is none now. */
  | 'disconnected'
  /** The object was disposed of. */
  | 'disposed'
  /** No answer in time. */
  | 'timeout'
  /** The server answered with an error status. */
  | 'refused'
  /** The server answered with something that the contract does not know. */
  | 'bad-answer'
  /** The server could not be reached. */
  | 'unreachable';

/** The one error class of the client room: what was expected, what came, what to try. */
export class ClientError extends Error {
  /**
   * @param code - Stable reason.
   * @param message - Sentences for a person.
   * @param details - HTTP status, the server's own code and the field at fault, where there are any.
   */
  constructor(
    readonly code: ClientErrorCode,
    message: string,
    readonly details: { status?: number; serverCode?: string; field?: string } = {}
  ) {
    super(message);
  }

  override readonly name = 'ClientError';
}

export type ClientErrorCode =
  | 'disconnected'
  | 'disposed'
  | 'timeout'
  /** The server answered with an error status. */
  | 'refused'
  /** The server answered with something that the contract does not know. */
  | 'bad-answer'
  /** The server could not be reached. */
  | 'unreachable';

export interface IClientErrorDetails {
  status?: number;
  serverCode?: string;
  field?: string;
}

/** The one error class of the client room: what was expected, what came, what to try. */
export class ClientError extends Error {
  constructor(
    readonly code: ClientErrorCode,
    message: string,
    details: IClientErrorDetails = {}
  ) {
    super(message);
    this.status = details.status;
    this.serverCode = details.serverCode;
    this.field = details.field;
  }

  override readonly name = 'ClientError';
  readonly status: number | undefined;
  readonly serverCode: string | undefined;
  readonly field: string | undefined;
}

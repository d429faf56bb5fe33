import type { ErrorCode, ErrorMessage } from './messages.generated';

export interface IProtocolErrorDetails {
  /** Dotted path of the field at fault. */
  field?: string;
  /** Column of the fault inside an expression, counted from 1. */
  column?: number;
  /** What should have come, short enough to log. */
  expected?: string;
  got?: string;
}

/**
 * Something on the wire, or meant for it, is not what the protocol says; also what an `error` message of the
 * hub becomes.
 *
 * `message` is one or two sentences for a person: what was expected, what came, what to try.
 */
export class ProtocolError extends Error {
  constructor(code: ErrorCode, message: string, details: IProtocolErrorDetails = {}) {
    super(message);
    this.code = code;
    this.field = details.field;
    this.column = details.column;
    this.expected = details.expected;
    this.got = details.got;
  }

  static fromMessage(message: ErrorMessage): ProtocolError {
    return new ProtocolError(message.code, message.message, message);
  }

  override readonly name = 'ProtocolError';
  readonly code: ErrorCode;
  readonly field: string | undefined;
  readonly column: number | undefined;
  readonly expected: string | undefined;
  readonly got: string | undefined;
}

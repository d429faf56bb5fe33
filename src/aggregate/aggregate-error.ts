/** Why nothing could be aggregated, where it matters to who asked. */
export type AggregateErrorCode =
  /** The question is wrong; the message says how. */
  | 'invalid'
  /** Inputs and outputs of modules would enter one group: choose a role or allow it. */
  | 'mixed'
  /** A line below a table cannot be followed; the message names the place. */
  | 'line'
  /** The page makes no code from text, as reports do not: what a person wrote below a table is not followed there. */
  | 'frozen'
  /** The worker lost what it knew; asking again helps. */
  | 'lost';

/** The one error class of the aggregate room: what was expected and what came. */
export class AggregateError extends Error {
  constructor(
    message: string,
    readonly code: AggregateErrorCode = 'invalid'
  ) {
    super(message);
  }

  override readonly name = 'AggregateError';
}

/** The one error class of the aggregate room: what was expected and what came. */
export class AggregateError extends Error {
  override readonly name = 'AggregateError';
}

/** A chart could not be drawn; the message says what was expected, what came and what to try. */
export class ChartError extends Error {
  override readonly name = 'ChartError';
}

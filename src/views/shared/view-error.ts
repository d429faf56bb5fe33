/** A view could not do what was asked; the message says what was expected, what came and what to try. */
export class ViewError extends Error {
  override readonly name = 'ViewError';
}

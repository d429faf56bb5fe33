/** Half of a surrogate pair alone: no character, and nothing that UTF-8 or an address can carry. */
const HALF = /\p{Surrogate}/u;

/** Whether a text is whole: every character of it can be sent, saved and put into an address. */
export function isWhole(text: string): boolean {
  return !HALF.test(text);
}

/**
 * A text from outside, made fit to be kept and shown: whole, and no longer than `most`.
 *
 * @param value - Anything; what is no text is empty.
 */
export function boundedText(value: unknown, most: number): string {
  const text = typeof value === 'string' ? value : '';
  const short = text.length > most ? `${text.slice(0, most - 1)}…` : text;
  return isWhole(short) ? short : short.replace(/\p{Surrogate}/gu, '\ufffd');
}

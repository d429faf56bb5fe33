/** Half of a surrogate pair alone: no character, and nothing that UTF-8 or an address can carry. */
const HALF = /\p{Surrogate}/u;
const MOST_DEPTH = 32;

/**
 * Whether a JSON value holds whole texts only, names too, and nests no deeper than anything of ours does. Half a surrogate pair can neither be sent
 * nor saved, and makes an address of a checked value throw.
 */
export function isWhole(value: unknown, depth = 0): boolean {
  if (typeof value === 'string') {
    return !HALF.test(value);
  }
  if (typeof value !== 'object' || value === null) {
    return true;
  }
  return (
    depth < MOST_DEPTH &&
    Object.entries(value).every(([name, each]) => !HALF.test(name) && isWhole(each, depth + 1))
  );
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

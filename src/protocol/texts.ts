/** What spreadsheets take for a formula, also behind quotes and white space. */
const FORMULA = /^[\s"']*[=+\-@＝＋－＠]|^[\t\r]/;
const NUMBER = /^[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?$/i;

/**
 * A value as cells of comma-separated values have it, before quoting: all digits of numbers, as pandas and
 * spreadsheets read them; a text that a spreadsheet would run as a formula has an apostrophe in front. A
 * number stays a number, also one that is written as text.
 */
export function csvValue(value: unknown): string {
  if (typeof value === 'number') {
    return Number.isNaN(value) ? 'nan' : Number.isFinite(value) ? String(value) : value > 0 ? 'inf' : '-inf';
  }
  const text = value === null || value === undefined ? '' : String(value);
  return FORMULA.test(text) && !NUMBER.test(text) ? `'${text}` : text;
}

/** A whole cell: quoted where the text could be read as more than one. */
export function csvCell(value: unknown): string {
  const text = csvValue(value);
  return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}

const [ZERO, NINE] = [48, 57];

/**
 * Compare texts with the numbers in them as numbers: `layers.2` before `layers.10`. Python's twin is
 * `natural_key`.
 */
export function compareNatural(a: string, b: string): number {
  let [left, right] = [0, 0];
  while (left < a.length && right < b.length) {
    const [one, other] = [a.charCodeAt(left), b.charCodeAt(right)];
    if (!isDigit(one) || !isDigit(other)) {
      if (one !== other) {
        return isDigit(one) ? -1 : isDigit(other) ? 1 : one - other;
      }
      left += 1;
      right += 1;
      continue;
    }
    const [fromLeft, fromRight] = [pastZeros(a, left), pastZeros(b, right)];
    left = pastDigits(a, fromLeft);
    right = pastDigits(b, fromRight);
    // By length first: numbers may be longer than a float64 counts.
    const lengths = left - fromLeft - (right - fromRight);
    for (let at = 0; lengths === 0 && at < left - fromLeft; at += 1) {
      const order = a.charCodeAt(fromLeft + at) - b.charCodeAt(fromRight + at);
      if (order !== 0) {
        return order;
      }
    }
    if (lengths !== 0) {
      return lengths;
    }
  }
  return a.length - left - (b.length - right);
}

function pastZeros(text: string, from: number): number {
  let at = from;
  while (text.charCodeAt(at) === ZERO) {
    at += 1;
  }
  return at;
}

function pastDigits(text: string, from: number): number {
  let at = from;
  while (isDigit(text.charCodeAt(at))) {
    at += 1;
  }
  return at;
}

function isDigit(code: number): boolean {
  return code >= ZERO && code <= NINE;
}

/** Half of a surrogate pair alone: no character, and nothing that UTF-8 or an address can carry. */
const HALF = /\p{Surrogate}/u;
const MOST_DEPTH = 32;

/**
 * Whether a JSON value nests within bounds and holds whole texts only. Half a surrogate pair can neither be
 * sent nor saved, and makes an address of a checked value throw.
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
 * A text from outside, made fit to be shown: whole, of at most `most` characters, empty for what is no text.
 */
export function boundedText(value: unknown, most: number): string {
  const text = typeof value === 'string' ? value : '';
  const short = text.length > most ? `${text.slice(0, most - 1)}…` : text;
  return isWhole(short) ? short : short.replace(/\p{Surrogate}/gu, '\ufffd');
}

/**
 * Marks texts of a table that are translated where they are shown: `scripts/words.mjs` finds them by this
 * name.
 */
export const translatedLater = <const T>(texts: T): T => texts;

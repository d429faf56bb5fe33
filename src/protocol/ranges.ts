import { ProtocolError } from './protocol-error';
import type { ErrorCode } from './messages.generated';

/**
 * Stands for a layer where there is none, as for the embedding; the one negative number that a text may name.
 */
export const EMBEDDING = -1;

/** Inclusive bounds. They are never written out as numbers, so that `0-999999999` takes no memory. */
export type Ranges = readonly (readonly [number, number])[];

const MOST_CHARACTERS = 10_000;
const EXPECTED = "'all' or ranges such as '0-3,7'";

/**
 * Read a text of ranges: which numbers a person, a message or a filter names. The twin of
 * `megalens/protocol/ranges.py`.
 *
 * @returns The ranges as they are written; null for `all`, which leaves nothing out.
 * @throws ProtocolError naming the field.
 */
export function readRanges(text: string, field: string, code: ErrorCode = 'bad-parameter'): Ranges | null {
  if (isAll(text)) {
    return null;
  }
  const ranges = rangesIn(text);
  if (ranges === null) {
    const got = `'${text.slice(0, 100)}'`;
    throw new ProtocolError(code, `${field} must be ${EXPECTED}, got ${got}.`, {
      field,
      expected: EXPECTED,
      got
    });
  }
  return ranges;
}

/**
 * Whether a number is in one of the ranges: every one is in null, and null, which is not known, is in none.
 */
export function isInRanges(value: number | null, ranges: Ranges | null): boolean {
  return ranges === null || (value !== null && ranges.some(([low, high]) => low <= value && value <= high));
}

/** The numbers of `known` (ascending) that a range text names; none where the text is no range text. */
export function inRanges(text: string, known: readonly number[]): number[] {
  const ranges = isAll(text) ? null : (rangesIn(text) ?? []);
  return known.filter(number => isInRanges(number, ranges));
}

/** Write numbers as ranges: `1-3,7` for `[7, 1, 2, 3]`; a person reads other signs than a message has. */
export function rangesText(numbers: Iterable<number>, dash = '-', comma = ','): string {
  const joined: [number, number][] = [];
  for (const number of [...new Set(numbers)].sort((a, b) => a - b)) {
    const last = joined.at(-1);
    if (last?.[1] === number - 1) {
      last[1] = number;
    } else {
      joined.push([number, number]);
    }
  }
  return joined.map(([low, high]) => (low === high ? `${low}` : `${low}${dash}${high}`)).join(comma);
}

/**
 * The layers that a range text names, in order.
 *
 * @throws ProtocolError `unknown-layer` when the text is no range, or either end of a range does not exist.
 */
export function parseLayers(text: string, existing: Iterable<number>, field = 'layers'): number[] {
  const known = [...new Set(existing)].sort((a, b) => a - b);
  const ranges = readRanges(text, field, 'unknown-layer');
  const alone = known.length === 1 && known[0] === EMBEDDING;
  const span = alone ? 'all' : known.length > 0 ? `${known[0]}–${known.at(-1)}` : 'none';
  const there = alone
    ? "It is at the embedding, outside the layers: choose 'all'."
    : `This model has layers ${span}.`;
  for (const [low, high] of ranges ?? []) {
    const missing = [low, high].find(layer => !known.includes(layer));
    if (missing !== undefined) {
      const piece = low === high ? `${low}` : `${low}-${high}`;
      throw new ProtocolError('unknown-layer', `Layers ${piece} do not all exist here. ${there}`, {
        field,
        expected: span,
        got: String(missing)
      });
    }
  }
  return known.filter(layer => isInRanges(layer, ranges));
}

/** Whether a text names numbers: 'all', or ranges such as '0-3,7'. */
export function isRangeText(text: string): boolean {
  return isAll(text) || rangesIn(text) !== null;
}

function isAll(text: string): boolean {
  return /^[ \t]*all[ \t]*$/.test(text);
}

function rangesIn(text: string): Ranges | null {
  if (text.length > MOST_CHARACTERS) {
    return null;
  }
  const ranges: [number, number][] = [];
  for (const piece of text.split(',')) {
    // 15 digits are whole numbers without a rounding error.
    const match = /^[ \t]*(-1|[0-9]{1,15})(?:[ \t]*-[ \t]*([0-9]{1,15}))?[ \t]*$/.exec(piece);
    const [low, high] = [Number(match?.[1]), Number(match?.[2] ?? match?.[1])];
    if (match === null || low > high) {
      return null;
    }
    ranges.push([low, high]);
  }
  return ranges;
}

import { placeBefore } from '../places';
import type { ILine } from './line';

/**
 * What other runs' lines are minus, or over, this run's line of the same key. Where this run has no point at a place of the other's, what lies between its
 * neighbours is taken; in its gaps, before its first and after its last one there is nothing.
 *
 * @returns Lines of the other runs, and how many of their points lay between two of this run's.
 */
export function compareLines(
  own: readonly ILine[],
  others: readonly ILine[],
  how: 'difference' | 'ratio'
): { lines: ILine[]; between: number } {
  const byKey = new Map(own.filter(line => !line.isFaint).map(line => [line.key, line]));
  let between = 0;
  const lines = others.flatMap(line => {
    const base = byKey.get(line.key);
    if (base === undefined || line.isFaint) {
      return [];
    }
    const value = line.value.map((each, at) => {
      const [beside, exact] = valueAt(base, line.x[at] ?? NaN);
      between += exact || Number.isNaN(beside) ? 0 : 1;
      return how === 'difference' ? each - beside : beside === 0 ? NaN : each / beside;
    });
    const { error: _error, half: _half, ...rest } = line;
    return [{ ...rest, value }];
  });
  return { lines, between };
}

/** The value of a line at a place, between two of its points where it has none there. */
function valueAt({ x, value, step, starts }: ILine, place: number): [number, boolean] {
  const at = placeBefore(x, place);
  if (at < 0) {
    return [NaN, false];
  }
  const [left, right] = [x[at] ?? NaN, x[at + 1]];
  if (left === place) {
    return [value[at] ?? NaN, true];
  }
  if (right === undefined || starts.includes(step[at + 1] ?? NaN)) {
    return [NaN, false];
  }
  const share = (place - left) / (right - left);
  return [(value[at] ?? NaN) * (1 - share) + (value[at + 1] ?? NaN) * share, false];
}

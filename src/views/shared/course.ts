/** A series over steps: NaN and infinite values are told, not drawn. */
export interface ICourseInput {
  readonly steps: ArrayLike<number>;
  readonly values: ArrayLike<number>;
}

/** A value at its step. */
export interface IAt {
  readonly step: number;
  readonly value: number;
}

/** The largest departure of a series from its own course: it left, was farthest off, and came back. */
export interface IDeparture {
  readonly from: IAt;
  readonly peak: IAt;
  readonly back: IAt;
}

/** What a person reads off a line. */
export interface ICourse {
  /** The first value that is not finite, and whether nothing after it is. */
  readonly bad: (IAt & { readonly stays: boolean }) | null;
  readonly start: IAt | null;
  readonly end: IAt | null;
  readonly low: number;
  readonly high: number;
  readonly departure: IDeparture | null;
}

/** Share of the larger magnitude that a departure must reach to be told. */
const WORTH = 0.1;
/** How many times the usual distance of neighbours it must reach: noise of 10,000 points stays below. */
const NOISE = 8;
/** Share of a departure at which it has begun and is over. */
const EDGE = 0.1;

/** Read the course of a series: its ends and range, what departs most and returns, what is not finite. */
export function courseOf({ steps, values }: ICourseInput): ICourse {
  const kept: number[] = [];
  let first = -1;
  for (let at = 0; at < values.length; at += 1) {
    if (Number.isFinite(values[at])) {
      kept.push(at);
    } else if (first < 0) {
      first = at;
    }
  }
  const numbers = kept.map(at => values[at] ?? NaN);
  const point = (index: number): IAt => ({
    step: steps[kept[index] ?? -1] ?? NaN,
    value: numbers[index] ?? NaN
  });
  const last = kept.length - 1;
  return {
    bad:
      first < 0
        ? null
        : { step: steps[first] ?? NaN, value: values[first] ?? NaN, stays: (kept[last] ?? -1) < first },
    start: last < 0 ? null : point(0),
    end: last < 0 ? null : point(last),
    low: numbers.reduce((a, b) => Math.min(a, b), Infinity),
    high: numbers.reduce((a, b) => Math.max(a, b), -Infinity),
    departure: departureOf(numbers, point)
  };
}

/**
 * The greatest rise above what a series comes to on both sides, or fall below it: of a peak that is its
 * prominence over the higher of the lowest values before and after it.
 */
function departureOf(numbers: readonly number[], point: (index: number) => IAt): IDeparture | null {
  const steps = Float64Array.from(numbers.slice(1), (value, at) =>
    Math.abs(value - (numbers[at] ?? 0))
  ).sort();
  const usual = steps[steps.length >> 1] ?? 0;
  const [up, down] = [prominent(numbers), prominent(numbers.map(value => -value))];
  const best = up && down ? (up.size >= down.size ? up : down) : (up ?? down);
  if (!best || best.size <= NOISE * usual) {
    return null;
  }
  const scale = Math.max(Math.abs(numbers[best.peak] ?? 0), Math.abs(numbers[best.from] ?? 0));
  return best.size < WORTH * scale
    ? null
    : { from: point(best.from), peak: point(best.peak), back: point(best.back) };
}

interface IPeak {
  readonly size: number;
  readonly from: number;
  readonly peak: number;
  readonly back: number;
}

function prominent(numbers: readonly number[]): IPeak | null {
  const after = new Float64Array(numbers.length + 1).fill(Infinity);
  for (let at = numbers.length - 1; at >= 0; at -= 1) {
    after[at] = Math.min(after[at + 1] ?? Infinity, numbers[at] ?? Infinity);
  }
  let [before, size, peak, level] = [numbers[0] ?? Infinity, 0, -1, 0];
  for (let at = 1; at < numbers.length - 1; at += 1) {
    const value = numbers[at] ?? NaN;
    const base = Math.max(before, after[at + 1] ?? Infinity);
    if (value - base > size) {
      [size, peak, level] = [value - base, at, base];
    }
    before = Math.min(before, value);
  }
  if (peak < 0) {
    return null;
  }
  const isOver = (at: number): boolean => (numbers[at] ?? NaN) <= level + EDGE * size;
  let [from, back] = [peak, peak];
  while (from > 0 && !isOver(from)) {
    from -= 1;
  }
  while (back < numbers.length - 1 && !isOver(back)) {
    back += 1;
  }
  return { size, from, peak, back };
}

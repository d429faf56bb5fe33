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
  // Typed arrays, filled by hand: a live run asks for its words with every picture.
  const places = new Uint32Array(values.length);
  const finite = new Float64Array(values.length);
  let [first, count, low, high] = [-1, 0, Infinity, -Infinity];
  for (let at = 0; at < values.length; at += 1) {
    const value = values[at] ?? NaN;
    if (Number.isFinite(value)) {
      places[count] = at;
      finite[count] = value;
      count += 1;
      low = value < low ? value : low;
      high = value > high ? value : high;
    } else if (first < 0) {
      first = at;
    }
  }
  const [kept, numbers] = [places.subarray(0, count), finite.subarray(0, count)];
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
    low,
    high,
    departure: departureOf(numbers, point)
  };
}

/**
 * The greatest rise above what a series comes to on both sides, or fall below it: of a peak that is its
 * prominence over the higher of the lowest values before and after it.
 */
function departureOf(numbers: Float64Array, point: (index: number) => IAt): IDeparture | null {
  const [up, down] = [prominent(numbers, 1), prominent(numbers, -1)];
  const best = up && down ? (up.size >= down.size ? up : down) : (up ?? down);
  if (!best) {
    return null;
  }
  const scale = Math.max(Math.abs(numbers[best.peak] ?? 0), Math.abs(numbers[best.from] ?? 0));
  return best.size < WORTH * scale || best.size <= NOISE * usualDistance(numbers)
    ? null
    : { from: point(best.from), peak: point(best.peak), back: point(best.back) };
}

/** The median distance of neighbours. */
function usualDistance(numbers: Float64Array): number {
  const distances = new Float64Array(Math.max(0, numbers.length - 1));
  for (let at = 0; at < distances.length; at += 1) {
    distances[at] = Math.abs((numbers[at + 1] ?? 0) - (numbers[at] ?? 0));
  }
  return distances.sort()[distances.length >> 1] ?? 0;
}

interface IPeak {
  readonly size: number;
  readonly from: number;
  readonly peak: number;
  readonly back: number;
}

/** The most prominent peak of numbers, or of their negatives. */
function prominent(numbers: Float64Array, sign: 1 | -1): IPeak | null {
  const of = (at: number): number => sign * (numbers[at] ?? NaN);
  const after = new Float64Array(numbers.length + 1).fill(Infinity);
  for (let at = numbers.length - 1; at >= 0; at -= 1) {
    after[at] = Math.min(after[at + 1] ?? Infinity, of(at));
  }
  let [before, size, peak, level] = [of(0), 0, -1, 0];
  for (let at = 1; at < numbers.length - 1; at += 1) {
    const value = of(at);
    const base = Math.max(before, after[at + 1] ?? Infinity);
    if (value - base > size) {
      [size, peak, level] = [value - base, at, base];
    }
    before = Math.min(before, value);
  }
  if (peak < 0) {
    return null;
  }
  const isOver = (at: number): boolean => of(at) <= level + EDGE * size;
  let [from, back] = [peak, peak];
  while (from > 0 && !isOver(from)) {
    from -= 1;
  }
  while (back < numbers.length - 1 && !isOver(back)) {
    back += 1;
  }
  return { size, from, peak, back };
}

/** What is summed up of one tensor, or of a group, in the order in which sums are packed. */
export const SUMS = [
  /** Finite values. */
  'count',
  /** NaN and infinite values; they enter nothing else. */
  'nonFinite',
  'sum',
  /** Sum of the squares. */
  'squares',
  /** Sum of the magnitudes. */
  'absolute',
  /** Sum of the squared deviations from the mean: summed on its own, since the difference of the two sums would lose it. */
  'deviation',
  /** Infinity where no value is finite. */
  'min',
  /** -Infinity where no value is finite. */
  'max'
] as const;

/** The sums of one tensor. */
export type IMoments = Readonly<Record<(typeof SUMS)[number], number>>;

const KNOWN = new WeakMap<Float32Array, IMoments>();

/**
 * The sums of one tensor's values, as float64, with the deviation about the mean in a second pass.
 *
 * A tensor never changes once it is kept, so its sums are remembered for as long as it is: a live trend passes over each tensor once.
 */
export function momentsOf(values: Float32Array): IMoments {
  const known = KNOWN.get(values);
  if (known !== undefined) {
    return known;
  }
  let count = 0;
  let sum = 0;
  let squares = 0;
  let absolute = 0;
  let min = Infinity;
  let max = -Infinity;
  for (let at = 0; at < values.length; at += 1) {
    const value = values[at] as number;
    // Only finite numbers leave nothing of themselves.
    if (value - value === 0) {
      count += 1;
      sum += value;
      squares += value * value;
      absolute += value < 0 ? -value : value;
      min = value < min ? value : min;
      max = value > max ? value : max;
    }
  }
  const mean = sum / count;
  let deviation = 0;
  for (let at = 0; at < values.length; at += 1) {
    const value = values[at] as number;
    if (value - value === 0) {
      deviation += (value - mean) * (value - mean);
    }
  }
  const nonFinite = values.length - count;
  const moments = { count, nonFinite, sum, squares, absolute, deviation, min, max };
  KNOWN.set(values, moments);
  return moments;
}

/** Whether a tensor's sums are remembered. */
export function isKnown(values: Float32Array): boolean {
  return KNOWN.has(values);
}

/** Remember a tensor's sums that were taken elsewhere. */
export function remember(values: Float32Array, moments: IMoments): void {
  KNOWN.set(values, moments);
}

/** Root of the mean square of the finite values; NaN where none is finite. */
export function rmsOf(values: Float32Array): number {
  const { squares, count } = momentsOf(values);
  return Math.sqrt(squares / count);
}

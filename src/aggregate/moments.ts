import type { IGroupSums } from './statistics';

/** What is summed up of one tensor. */
export interface IMoments {
  readonly count: number;
  readonly nonFinite: number;
  readonly sum: number;
  readonly squares: number;
  readonly absolute: number;
  readonly deviation: number;
  readonly min: number;
  readonly max: number;
}

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
  for (const value of values) {
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
  for (const value of values) {
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

/**
 * Add one tensor's sums to a group's.
 *
 * Deviations about two means are joined by the formula of Chan, Golub and LeVeque (1979): what lies between the means is added.
 */
export function mergeMoments(sums: IGroupSums, group: number, moments: IMoments): void {
  const before = sums.count[group] ?? 0;
  const after = before + moments.count;
  if (before > 0 && moments.count > 0) {
    const apart = moments.sum / moments.count - (sums.sum[group] ?? 0) / before;
    add(sums.deviation, group, apart * apart * (before / after) * moments.count);
  }
  add(sums.count, group, moments.count);
  add(sums.nonFinite, group, moments.nonFinite);
  add(sums.sum, group, moments.sum);
  add(sums.squares, group, moments.squares);
  add(sums.absolute, group, moments.absolute);
  add(sums.deviation, group, moments.deviation);
  sums.min[group] = Math.min(sums.min[group] ?? Infinity, moments.min);
  sums.max[group] = Math.max(sums.max[group] ?? -Infinity, moments.max);
}

function add(column: Float64Array, group: number, value: number): void {
  column[group] = (column[group] ?? 0) + value;
}

import type { IMoments } from '../store/row-moments';
import type { IGroupSums } from './statistics';

export { isKnown, momentsOf, remember, type IMoments } from '../store/row-moments';

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

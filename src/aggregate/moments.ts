import type { IMoments } from '../store/row-moments';
import type { IGroupSums } from './statistics';

export { isKnown, momentsOf, remember, SUMS, type IMoments } from '../store/row-moments';

const ADDED = ['count', 'nonFinite', 'sum', 'squares', 'absolute', 'deviation'] as const;

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
    sums.deviation[group] = (sums.deviation[group] ?? 0) + apart * apart * (before / after) * moments.count;
  }
  for (const name of ADDED) {
    sums[name][group] = (sums[name][group] ?? 0) + moments[name];
  }
  sums.min[group] = Math.min(sums.min[group] ?? Infinity, moments.min);
  sums.max[group] = Math.max(sums.max[group] ?? -Infinity, moments.max);
}

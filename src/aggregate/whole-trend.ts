import { byName } from '../protocol/by-name';
import { powerOf, readMoments } from '../protocol/moment-statistics';
import type { MomentStatistic } from '../protocol/views.generated';
import type { ITensorMoments, ITensorRow } from '../store/source';
import { MERGED, mergeRows } from './moment-merge';

/** A row of which the whole tensor's statistics are known. */
export type IWholeRow = ITensorRow & { readonly whole: ITensorMoments };

/**
 * One statistic of whole tensors for each group, merged over their rows.
 *
 * @param group - Group of each row.
 * @param groups - Their number.
 */
export function wholeStatistic(
  rows: readonly IWholeRow[],
  group: ArrayLike<number>,
  groups: number,
  statistic: MomentStatistic
): { value: Float64Array; count: Float64Array; nonFinite: Float64Array } {
  const columns = byName(MERGED, () => new Float64Array(rows.length));
  // Column by column with computed names this takes several times as long, of all rows for every picture.
  rows.forEach(({ whole, nanCount, infCount }, at) => {
    columns.count[at] = whole.count;
    columns.mean[at] = whole.mean;
    columns.m2[at] = whole.m2;
    columns.m3[at] = whole.m3;
    columns.m4[at] = whole.m4;
    columns.min[at] = whole.min;
    columns.max[at] = whole.max;
    columns.nonFinite[at] = nanCount + infCount;
  });
  const any = { rounding: false, nearZero: false, nonFinite: columns.nonFinite.some(each => each > 0) };
  const needs = { power: powerOf(statistic), extremes: true };
  const merged = mergeRows({ columns, any }, 0, Int32Array.from(group), groups, needs);
  const nonFinite = merged.nonFinite.length > 0 ? merged.nonFinite : new Float64Array(groups);
  return { value: readMoments({ ...merged, nonFinite }, statistic), count: merged.count, nonFinite };
}

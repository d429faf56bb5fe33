import { byName } from '../protocol/records';
import VIEWS_SCHEMA from '#protocol/views.schema.json';
import type { TrendOptions } from '../protocol/views.generated';
import { SUMS } from '../store/row-moments';

export type Statistic = Required<TrendOptions>['statistic'];

export type WholeStatistic = Exclude<Statistic, `kept_${string}`>;

export const isWholeStatistic = (statistic: Statistic): statistic is WholeStatistic =>
  !statistic.startsWith('kept_');

export type KeptStatistic = 'abs_mean' | 'max' | 'mean' | 'min' | 'nonfinite' | 'rms' | 'std';

export type IGroupSums = Readonly<Record<(typeof SUMS)[number], Float64Array>>;

const BEGIN: Partial<Record<(typeof SUMS)[number], number>> = { min: Infinity, max: -Infinity };

export const emptySums = (groups: number): IGroupSums =>
  byName(SUMS, name => new Float64Array(groups).fill(BEGIN[name] ?? 0));

type Read = (sums: IGroupSums, group: number) => number;

const at = (column: Float64Array, group: number): number => column[group] ?? Number.NaN;

/**
 * All but `nonfinite` of the finite values; deviations are those of the population, `abs_mean` is the mean
 * magnitude.
 */
const READ: Readonly<Record<KeptStatistic, Read>> = {
  mean: (sums, group) => at(sums.sum, group) / at(sums.count, group),
  std: (sums, group) => Math.sqrt(at(sums.deviation, group) / at(sums.count, group)),
  min: (sums, group) => at(sums.min, group),
  max: (sums, group) => at(sums.max, group),
  rms: (sums, group) => Math.sqrt(at(sums.squares, group) / at(sums.count, group)),
  abs_mean: (sums, group) => at(sums.absolute, group) / at(sums.count, group),
  nonfinite: (sums, group) => at(sums.nonFinite, group)
};

export const KEPT_STATISTICS = Object.keys(READ) as readonly KeptStatistic[];

/**
 * Every statistic that can be drawn, in the order in which it is offered: of whole tensors, and of what the
 * compressor kept.
 */
export const STATISTICS: readonly Statistic[] = (VIEWS_SCHEMA.$defs?.['Statistic']?.enum ??
  []) as Statistic[];

/**
 * The statistic of what the compressor kept that is meant, or stands for one of the whole tensor; null where
 * there is none such.
 */
export function keptStatistic(statistic: Statistic): KeptStatistic | null {
  const name = statistic.replace(/^kept_/, '');
  return KEPT_STATISTICS.find(each => each === name) ?? null;
}

/**
 * One statistic of every group.
 *
 * @returns One number per group: NaN where the group has no finite value, except that `nonfinite` is always a
 * count.
 */
export function readStatistic(sums: IGroupSums, statistic: KeptStatistic): Float64Array {
  const read = READ[statistic];
  return sums.count.map((count, group) =>
    count === 0 && statistic !== 'nonfinite' ? Number.NaN : read(sums, group)
  );
}

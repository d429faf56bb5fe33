import { byName } from '../protocol/by-name';
import type { TrendOptions } from '../protocol/views.generated';
import { SUMS } from '../store/row-moments';

/** Name of a statistic, as the contract's view options know it. */
export type Statistic = Required<TrendOptions>['statistic'];

/** What is summed up of each group; one entry per group in every array. */
export type IGroupSums = Readonly<Record<(typeof SUMS)[number], Float64Array>>;

const BEGIN: Partial<Record<(typeof SUMS)[number], number>> = { min: Infinity, max: -Infinity };

/** Empty sums for a number of groups. */
export const emptySums = (groups: number): IGroupSums =>
  byName(SUMS, name => new Float64Array(groups).fill(BEGIN[name] ?? 0));

type Read = (sums: IGroupSums, group: number) => number;

const at = (column: Float64Array, group: number): number => column[group] ?? Number.NaN;

/** Arithmetic mean of the finite values. */
export const mean: Read = (sums, group) => at(sums.sum, group) / at(sums.count, group);

/** Standard deviation of the population of finite values. */
export const std: Read = (sums, group) => Math.sqrt(at(sums.deviation, group) / at(sums.count, group));

/** Least finite value. */
export const min: Read = (sums, group) => at(sums.min, group);

/** Greatest finite value. */
export const max: Read = (sums, group) => at(sums.max, group);

/** Root of the mean square of the finite values. */
export const rms: Read = (sums, group) => Math.sqrt(at(sums.squares, group) / at(sums.count, group));

/** Mean magnitude of the finite values. */
export const absMean: Read = (sums, group) => at(sums.absolute, group) / at(sums.count, group);

/** Number of values that are NaN or infinite. */
export const nonFinite: Read = (sums, group) => at(sums.nonFinite, group);

const READ: Readonly<Record<Statistic, Read>> = {
  mean,
  std,
  min,
  max,
  rms,
  abs_mean: absMean,
  nonfinite: nonFinite
};

/** Every statistic by name. */
export const STATISTICS = Object.keys(READ) as readonly Statistic[];

/**
 * One statistic of every group.
 *
 * @returns One number per group: NaN where the group has no finite value, except that `nonfinite` is always a count.
 */
export function readStatistic(sums: IGroupSums, statistic: Statistic): Float64Array {
  const read = READ[statistic];
  return sums.count.map((count, group) =>
    count === 0 && statistic !== 'nonfinite' ? Number.NaN : read(sums, group)
  );
}

import type { TrendOptions } from '../protocol/views.generated';

/** Name of a statistic, as the contract's view options know it. */
export type Statistic = Required<TrendOptions>['statistic'];

/** What is summed up of each group; one entry per group in every array. */
export interface IGroupSums {
  /** Finite values. */
  readonly count: Float64Array;
  /** NaN and infinite values; they enter nothing else. */
  readonly nonFinite: Float64Array;
  readonly sum: Float64Array;
  /** Sum of the squares. */
  readonly squares: Float64Array;
  /** Sum of the magnitudes. */
  readonly absolute: Float64Array;
  /** Sum of the squared deviations from the group's mean: summed on its own, since the difference of the two sums would lose it. */
  readonly deviation: Float64Array;
  /** Infinity where the group has no finite value. */
  readonly min: Float64Array;
  /** -Infinity where the group has no finite value. */
  readonly max: Float64Array;
}

/** Empty sums for a number of groups. */
export function emptySums(groups: number): IGroupSums {
  return {
    count: new Float64Array(groups),
    nonFinite: new Float64Array(groups),
    sum: new Float64Array(groups),
    squares: new Float64Array(groups),
    absolute: new Float64Array(groups),
    deviation: new Float64Array(groups),
    min: new Float64Array(groups).fill(Infinity),
    max: new Float64Array(groups).fill(-Infinity)
  };
}

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

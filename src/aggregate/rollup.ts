import { AggregateError } from './aggregate-error';
import { groupBy, type Integers } from './group';
import { STATISTICS, emptySums, readStatistic, type IGroupSums, type Statistic } from './statistics';

/** Rows to be rolled up: one number each. */
export interface IRollupRows {
  readonly step: Integers;
  readonly layer: Integers;
  readonly value: Float64Array | Float32Array;
}

/** One row per step and layer, ordered by step, then layer; a column for each statistic that was asked for. */
export interface IRollup {
  readonly step: Float64Array;
  readonly layer: Float64Array;
  readonly statistics: Readonly<Partial<Record<Statistic, Float64Array>>>;
}

/**
 * Group rows by step and layer and take statistics of each group.
 *
 * This is the typed-array pass that stands in for arquero's `groupby().rollup()` where rows are many: one pass adds, a second one sums the
 * deviations when `std` is asked for. The columns that come out are what arquero takes as a table, without a copy.
 *
 * @throws AggregateError when the columns have different lengths or there is no such statistic.
 */
export function rollup(rows: IRollupRows, statistics: readonly Statistic[]): IRollup {
  const unknown = statistics.find(name => !STATISTICS.includes(name));
  if (unknown !== undefined) {
    throw new AggregateError(`There is no statistic ${unknown}. Choose from ${STATISTICS.join(', ')}.`);
  }
  const { step, layer, value } = rows;
  if (step.length !== value.length || layer.length !== value.length) {
    throw new AggregateError(
      `Columns of one length were expected, and ${step.length} steps, ${layer.length} layers and ${value.length} values came.`
    );
  }
  const groups = groupBy(step, layer);
  const sums = emptySums(groups.first.length);
  addAll(sums, groups.group, value);
  if (statistics.includes('std')) {
    addDeviations(sums, groups.group, value);
  }
  return {
    step: groups.first,
    layer: groups.second,
    statistics: Object.fromEntries(statistics.map(name => [name, readStatistic(sums, name)]))
  };
}

function addAll(sums: IGroupSums, groups: Uint32Array, values: Float64Array | Float32Array): void {
  const { count, nonFinite, sum, squares, absolute, min, max } = sums;
  for (let row = 0; row < values.length; row += 1) {
    // Every index is in range: `groups` numbers the groups that `sums` was made for.
    const group = groups[row] as number;
    const value = values[row] as number;
    if (value - value !== 0) {
      (nonFinite[group] as number) += 1;
      continue;
    }
    (count[group] as number) += 1;
    (sum[group] as number) += value;
    (squares[group] as number) += value * value;
    (absolute[group] as number) += value < 0 ? -value : value;
    if (value < (min[group] as number)) {
      min[group] = value;
    }
    if (value > (max[group] as number)) {
      max[group] = value;
    }
  }
}

function addDeviations(sums: IGroupSums, groups: Uint32Array, values: Float64Array | Float32Array): void {
  const means = sums.sum.map((sum, group) => sum / (sums.count[group] ?? 0));
  const { deviation } = sums;
  for (let row = 0; row < values.length; row += 1) {
    const group = groups[row] as number;
    const apart = (values[row] as number) - (means[group] as number);
    if (apart - apart === 0) {
      (deviation[group] as number) += apart * apart;
    }
  }
}

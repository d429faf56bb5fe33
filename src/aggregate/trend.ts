import type { ITensorRow } from '../store/source';
import { AggregateError } from './aggregate-error';
import { groupBy } from './group';
import { mergeMoments, momentsOf } from './moments';
import { STATISTICS, emptySums, readStatistic, type Statistic } from './statistics';
import { WorkQueue } from './work-queue';

/** A statistic per step and layer, as columns ordered by step, then layer. All arrays have one length. */
export interface ITrend {
  readonly step: Float64Array;
  readonly layer: Float64Array;
  /** NaN where nothing was finite. */
  readonly value: Float64Array;
  /** Finite values that entered. */
  readonly count: Float64Array;
  /** NaN and infinite values that stayed out. */
  readonly nonFinite: Float64Array;
}

/** A statistic of one layer over steps, ascending. */
export interface ILayerTrend {
  readonly layer: number;
  readonly steps: number[];
  /** NaN where nothing was finite. */
  readonly values: number[];
  /** Non-finite traced values of each step. */
  readonly nonFinite: number[];
}

/**
 * Reduce traced tensors to one number per step and layer.
 *
 * All values of a step and layer count alike, whichever micro-batch, sample or rank they came from. Python's twin is
 * `megalens/client/aggregate.py`; both read `protocol/fixtures/aggregate/`.
 *
 * @param rows - Rows of one flag, part and phase.
 * @param statistic - Over the finite values; `nonfinite` counts the others.
 * @throws AggregateError when there is no such statistic.
 */
export function trend(rows: readonly ITensorRow[], statistic: Statistic): ITrend {
  if (!STATISTICS.includes(statistic)) {
    throw new AggregateError(`There is no statistic ${statistic}. Choose one of ${STATISTICS.join(', ')}.`);
  }
  const groups = groupBy(
    Float64Array.from(rows, row => row.step),
    Float64Array.from(rows, row => row.layer)
  );
  const sums = emptySums(groups.first.length);
  rows.forEach((row, index) => mergeMoments(sums, groups.group[index] ?? 0, momentsOf(row.values)));
  return {
    step: groups.first,
    layer: groups.second,
    value: readStatistic(sums, statistic),
    count: sums.count,
    nonFinite: sums.nonFinite
  };
}

/**
 * As `trend`, with the pass over the tensors' values in a worker where they are many. Tensors that a trend has met before cost nothing.
 *
 * @param queue - Where large work is done; one that the page shares when absent.
 */
export async function trendOf(
  rows: readonly ITensorRow[],
  statistic: Statistic,
  queue: WorkQueue = pageQueue
): Promise<ITrend> {
  await queue.learn(rows.map(row => row.values));
  return trend(rows, statistic);
}

const pageQueue = new WorkQueue();

/** The same trend, one series for each layer, layers ascending. */
export function byLayer(columns: ITrend): ILayerTrend[] {
  const layers = new Map<number, ILayerTrend>();
  columns.step.forEach((step, index) => {
    const layer = columns.layer[index] ?? 0;
    const series = layers.get(layer) ?? { layer, steps: [], values: [], nonFinite: [] };
    layers.set(layer, series);
    series.steps.push(step);
    series.values.push(columns.value[index] ?? Number.NaN);
    series.nonFinite.push(columns.nonFinite[index] ?? 0);
  });
  return [...layers.values()].sort((a, b) => a.layer - b.layer);
}

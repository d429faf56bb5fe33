import type { ITensorRow } from '../store/source';
import { AggregateError } from './aggregate-error';
import { groupBy } from './group';
import { halfWidth, joinUnits } from './interval';
import { mergeMoments, momentsOf } from './moments';
import { isSelective, selectedOf, type ISelection, type IUnits } from './selection';
import { STATISTICS, emptySums, readStatistic, type Statistic } from './statistics';
import { pageQueue, type WorkQueue } from './work-queue';

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
  /** The band about the mean, where one was asked for: half its width, NaN where there is too little. */
  readonly half?: Float64Array;
  /** Positions and samples that a band is over. */
  readonly units?: Float64Array;
}

/** A statistic of one layer over steps, ascending. */
export interface ILayerTrend {
  readonly layer: number;
  readonly steps: number[];
  /** NaN where nothing was finite. */
  readonly values: number[];
  /** Non-finite traced values of each step. */
  readonly nonFinite: number[];
  /** Half the width of the band about each value; absent where none was asked for. */
  readonly half?: number[];
}

/**
 * Reduce traced tensors to one number per step and layer.
 *
 * All values of a step and layer count alike, whichever micro-batch, sample or rank they came from. Python's twin is
 * `megalens/client/aggregate.py`; both read `protocol/fixtures/aggregate/`.
 *
 * @param rows - Rows of one flag, part, phase and pass. Reduced ones enter with what is remembered of them, unless less than their whole is
 *   selected.
 * @param statistic - Over the finite values; `nonfinite` counts the others.
 * @param selection - Which values enter, and what is asked of their spread; all of them and nothing when absent.
 * @throws AggregateError when there is no such statistic.
 */
export function trend(all: readonly ITensorRow[], statistic: Statistic, selection?: ISelection): ITrend {
  if (!STATISTICS.includes(statistic)) {
    throw new AggregateError(`There is no statistic ${statistic}. Choose one of ${STATISTICS.join(', ')}.`);
  }
  const chosen = selection && all.some(row => isSelective(row, selection)) ? selection : undefined;
  const rows = chosen ? all.filter(row => !row.reduced) : all;
  const groups = groupBy(
    Float64Array.from(rows, row => row.step),
    Float64Array.from(rows, row => row.layer)
  );
  const sums = emptySums(groups.first.length);
  const units: IUnits[] = [];
  rows.forEach((row, index) => {
    const group = groups.group[index] ?? 0;
    if (chosen === undefined) {
      mergeMoments(sums, group, momentsOf(row.values));
      return;
    }
    const selected = selectedOf(row, chosen);
    mergeMoments(sums, group, selected.moments);
    units[group] = joinUnits(units[group] ?? NO_UNITS, selected.units);
  });
  const band = chosen && chosen.interval !== 'none' && statistic === 'mean' ? chosen.interval : null;
  return {
    step: groups.first,
    layer: groups.second,
    value: readStatistic(sums, statistic),
    count: sums.count,
    nonFinite: sums.nonFinite,
    ...(band
      ? {
          half: Float64Array.from(units, each => halfWidth(each, band)),
          units: Float64Array.from(units, each => each.count)
        }
      : {})
  };
}

const NO_UNITS: IUnits = { count: 0, mean: 0, deviation: 0 };

/** Longest that the page waits for a pass over parts of tensors, ms. */
const SLICE = 12;

/**
 * As `trend`, with the pass over the tensors' values in a worker where they are many. Tensors that a trend has met before cost nothing.
 *
 * @param queue - Where large work is done; one that the page shares when absent.
 */
export async function trendOf(
  rows: readonly ITensorRow[],
  statistic: Statistic,
  selection?: ISelection,
  queue: WorkQueue = pageQueue
): Promise<ITrend> {
  if (selection && rows.some(row => isSelective(row, selection))) {
    let since = performance.now();
    for (const row of rows.filter(each => !each.reduced)) {
      selectedOf(row, selection);
      if (performance.now() - since > SLICE) {
        await new Promise(done => setTimeout(done));
        since = performance.now();
      }
    }
  } else {
    await queue.learn(rows.map(row => row.values));
  }
  return trend(rows, statistic, selection);
}

/** The same trend, one series for each layer, layers ascending. */
export function byLayer(columns: ITrend): ILayerTrend[] {
  const layers = new Map<number, ILayerTrend>();
  columns.step.forEach((step, index) => {
    const layer = columns.layer[index] ?? 0;
    const series: ILayerTrend = layers.get(layer) ?? {
      layer,
      steps: [],
      values: [],
      nonFinite: [],
      ...(columns.half ? { half: [] } : {})
    };
    layers.set(layer, series);
    series.steps.push(step);
    series.values.push(columns.value[index] ?? Number.NaN);
    series.nonFinite.push(columns.nonFinite[index] ?? 0);
    series.half?.push(columns.half?.[index] ?? Number.NaN);
  });
  return [...layers.values()].sort((a, b) => a.layer - b.layer);
}

import { byName } from '../protocol/records';
import { powerOf, readMoments } from '../protocol/moment-statistics';
import type { MomentStatistic, TrendOptions } from '../protocol/views.generated';
import type { ILayerLine } from '../store/line-data';
import type { ITensorMoments, ITensorRow } from '../store/tensor-data';
import { groupBy, type IUnits, isSelective, selectedOf } from './group';
import { gapStarts, picked } from './read-scalars';
import {
  AggregateError,
  MERGED,
  mergeRows,
  mergeMoments,
  momentsOf,
  STATISTICS,
  emptySums,
  isWholeStatistic,
  keptStatistic,
  readStatistic,
  type Statistic
} from './moment-merge';
import { pageQueue, type WorkQueue } from './work-queue';
import type { TensorSelection } from '../protocol/requests.generated';

/** A row of which the whole tensor's statistics are known. */
type IWholeRow = ITensorRow & { readonly whole: ITensorMoments };

/** One statistic of whole tensors for each group, merged over their rows. */
function wholeStatistic(
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

type Interval = Required<TrendOptions>['interval'];

const Z = 1.959963984540054;
const FEW = [12.706204736174698, 4.302652729749462, 3.182446305284263, 2.776445105197793, 2.570581835636314];

/**
 * The 0.975 quantile of Student's t: exact up to five degrees of freedom, from there on by the expansion of
 * Cornish and Fisher (Abramowitz and Stegun 26.7.5), which is right to three digits.
 */
function studentT(freedom: number): number {
  const exact = FEW[freedom - 1];
  if (exact !== undefined) {
    return exact;
  }
  const first = (Z ** 3 + Z) / 4;
  const second = (5 * Z ** 5 + 16 * Z ** 3 + 3 * Z) / 96;
  const third = (3 * Z ** 7 + 19 * Z ** 5 + 17 * Z ** 3 - 15 * Z) / 384;
  return Z + first / freedom + second / freedom ** 2 + third / freedom ** 3;
}

/** Join the spreads of two sets of units, by the formula of Chan, Golub and LeVeque. */
function joinUnits(a: IUnits, b: IUnits): IUnits {
  const count = a.count + b.count;
  if (count === 0) {
    return a;
  }
  const apart = b.mean - a.mean;
  return {
    count,
    mean: a.mean + (apart * b.count) / count,
    deviation: a.deviation + b.deviation + (apart * apart * a.count * b.count) / count
  };
}

/**
 * Half the width of the band about a mean: for `std` the standard deviation of the units, sqrt(D / n); for
 * `ci95` t(n − 1) · s / sqrt(n) with s = sqrt(D / (n − 1)). D is the sum of their squared deviations. NaN
 * where there are too few.
 *
 * The interval takes the units for independent. Neighbouring positions of a text are not: then the effective
 * number of them is smaller and the true interval wider.
 */
function halfWidth({ count, deviation }: IUnits, interval: Interval): number {
  switch (interval) {
    case 'none':
      return NaN;
    case 'std':
      return count > 0 ? Math.sqrt(deviation / count) : NaN;
    case 'ci95':
      return count > 1 ? (studentT(count - 1) * Math.sqrt(deviation / (count - 1))) / Math.sqrt(count) : NaN;
  }
}

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
  /**
   * Whether a statistic of whole tensors was asked for and is of what the compressor kept: no more is known.
   * NaN where it has no such statistic.
   */
  readonly isKept: boolean;
}

/**
 * Reduce traced tensors to one number per step and layer.
 *
 * A statistic of whole tensors is merged of what was measured before compression; where that is not known of
 * every row, or less than all is selected, it is over what the compressor kept. All values of a step and
 * layer count alike, whichever micro-batch, sample or rank they came from. Python's twin is
 * `megalens/runs/answers/trend_rows.py`; both read `protocol/fixtures/aggregate/`.
 *
 * @param rows - Rows of one flag, part, phase and pass. Reduced ones enter with what is remembered of them,
 * unless less than their whole is   selected.
 * @throws AggregateError when there is no such statistic.
 */
export function trend(all: readonly ITensorRow[], statistic: Statistic, selection?: TensorSelection): ITrend {
  if (!STATISTICS.includes(statistic)) {
    throw new AggregateError(`There is no statistic ${statistic}. Choose one of ${STATISTICS.join(', ')}.`);
  }
  const chosen = selection && all.some(row => isSelective(row, selection)) ? selection : undefined;
  const rows = chosen ? all.filter(row => !row.reduced) : all;
  const groups = groupBy(
    Float64Array.from(rows, row => row.step),
    Float64Array.from(rows, row => row.layer)
  );
  const isWhole = isWholeStatistic(statistic);
  if (isWhole && chosen === undefined && rows.every(hasWhole)) {
    const whole = wholeStatistic(rows, groups.group, groups.first.length, statistic);
    return { step: groups.first, layer: groups.second, ...whole, isKept: false };
  }
  const kept = keptStatistic(statistic);
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
  const band = chosen && chosen.interval !== 'none' && kept === 'mean' ? chosen.interval : null;
  return {
    step: groups.first,
    layer: groups.second,
    value: kept ? readStatistic(sums, kept) : sums.count.map(() => NaN),
    count: sums.count,
    nonFinite: sums.nonFinite,
    isKept: isWhole && rows.length > 0,
    ...(band
      ? {
          half: Float64Array.from(units, each => halfWidth(each, band)),
          units: Float64Array.from(units, each => each.count)
        }
      : {})
  };
}

const hasWhole = (row: ITensorRow): row is IWholeRow => row.whole !== null;

const NO_UNITS: IUnits = { count: 0, mean: 0, deviation: 0 };

/** Longest that the page waits for a pass over parts of tensors, ms. */
const SLICE = 12;

/**
 * As `trend`, with the pass over the tensors' values in a worker where they are many. Tensors that a trend
 * has met before cost nothing.
 */
export async function trendOf(
  rows: readonly ITensorRow[],
  statistic: Statistic,
  selection?: TensorSelection,
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
  } else if (!isWholeStatistic(statistic) || !rows.every(hasWhole)) {
    await queue.learn(rows.map(row => row.values));
  }
  return trend(rows, statistic, selection);
}

export function mapLine(
  line: ILayerLine,
  change: (column: Float64Array) => Float64Array,
  starts: readonly number[]
): ILayerLine {
  const { layer, steps, values, nonFinite, half } = line;
  return {
    layer,
    steps: change(steps),
    values: change(values),
    nonFinite: change(nonFinite),
    ...(half ? { half: change(half) } : {}),
    starts
  };
}

/** The same trend, one line for each layer, layers ascending. A line begins anew after a gap in its steps. */
export function byLayer(columns: ITrend): ILayerLine[] {
  const indices = new Map<number, number[]>();
  columns.layer.forEach((layer, index) => {
    const known = indices.get(layer);
    if (known) {
      known.push(index);
    } else {
      indices.set(layer, [index]);
    }
  });
  return [...indices]
    .sort(([a], [b]) => a - b)
    .map(([layer, at]) => {
      const pick = (column: Float64Array): Float64Array => picked(column, at);
      const steps = pick(columns.step);
      return {
        layer,
        steps,
        values: pick(columns.value),
        nonFinite: pick(columns.nonFinite),
        ...(columns.half ? { half: pick(columns.half) } : {}),
        starts: gapStarts(steps)
      };
    });
}

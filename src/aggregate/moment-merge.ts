import { byName } from '../protocol/records';
import type { IMergedMoments } from '../protocol/moment-statistics';
import { type IMoments, SUMS } from '../store/row-moments';
import VIEWS_SCHEMA from '#protocol/views.schema.json';
import type { TrendOptions } from '../protocol/views.generated';

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

export type AggregateErrorCode =
  /** The question is wrong; the message says how. */
  | 'invalid'
  /** Inputs and outputs of modules would enter one group: choose a role or allow it. */
  | 'mixed'
  /** A line below a table cannot be followed; the message names the place. */
  | 'line'
  /**
   * The page makes no code from text, as reports do not: what a person wrote below a table is not followed
   * there.
   */
  | 'frozen'
  /** The worker lost what it knew; asking again helps. */
  | 'lost';

/** The one error class of the aggregate room: what was expected and what came. */
export class AggregateError extends Error {
  constructor(
    message: string,
    readonly code: AggregateErrorCode = 'invalid'
  ) {
    super(message);
  }

  override readonly name = 'AggregateError';
}

export { isKnown, momentsOf, remember, SUMS, type IMoments } from '../store/row-moments';

const ADDED = ['count', 'nonFinite', 'sum', 'squares', 'absolute', 'deviation'] as const;

/**
 * Add one tensor's sums to a group's.
 *
 * Deviations about two means are joined by the formula of Chan, Golub and LeVeque (1979): what lies between
 * the means is added.
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

export interface IMomentNeeds {
  /** Highest power of the deviations: 0 is none, 1 the mean alone. */
  readonly power: number;
  readonly extremes: boolean;
}

/** Columns that rows and cells have alike. */
const ALIKE = ['count', 'mean', 'm2', 'm3', 'm4', 'min', 'max', 'nonFinite', 'nearZero'] as const;
/** Columns of rows that are merged. */
export const MERGED = [...ALIKE, 'rounding'] as const;

/** Rows that are merged: those of a table, or those that arquero hands over. */
export interface IMergeRows {
  readonly columns: Readonly<Record<(typeof MERGED)[number], Float64Array>>;
  /**
   * Whether any row has rounding, non-finite values or values near zero: passes over what is 0 everywhere are
   * left out.
   */
  readonly any: Readonly<Record<'rounding' | 'nonFinite' | 'nearZero', boolean>>;
}

const NONE = new Float64Array(0);

/**
 * Merge rows into cells, exactly as if the values themselves had been put there. Python's twin is
 * `merge_moments` in `megalens/protocol/moments.py`.
 *
 * The central moments of a cell are the sums of its rows' moments about the cell's mean (Pébay 2008,
 * SAND2008-6212, equations 3.1 for many sets at once), so there are two passes: one for counts and means, one
 * for the rest.
 *
 * @param first - The first row that may take part.
 * @param cell - Cell of each row from `first` on; -1 leaves a row out.
 * @param needs - Columns that nobody needs stay empty.
 */
export function mergeRows(
  table: IMergeRows,
  first: number,
  cell: Int32Array,
  cells: number,
  needs: IMomentNeeds
): IMergedMoments {
  const { columns, any } = table;
  const of = (column: Float64Array): Float64Array => column.subarray(first, first + cell.length);
  const [n, means, m2s] = [of(columns.count), of(columns.mean), of(columns.m2)];
  const count = new Float64Array(cells);
  const mean = new Float64Array(cells);
  // Means are summed as distances from the first one: rows of one mean lie exactly at distance 0.
  const near = new Float64Array(cells);
  for (let row = 0; row < cell.length; row += 1) {
    // Every index is in range: cells are numbered below `cells`. Rows of count 0 are no data.
    const to = cell[row] as number;
    const size = n[row] as number;
    if (to >= 0 && size > 0) {
      const middle = means[row] as number;
      if (count[to] === 0 && Number.isFinite(middle)) {
        near[to] = middle;
      }
      (count[to] as number) += size;
      (mean[to] as number) += size * (middle - (near[to] as number));
    }
  }
  for (let to = 0; to < cells; to += 1) {
    mean[to] = (near[to] as number) + (mean[to] as number) / (count[to] as number);
  }
  const powers = needs.power > 1 || any.rounding;
  const high = needs.power > 2;
  const m2 = powers ? new Float64Array(cells) : NONE;
  const m3 = high ? new Float64Array(cells) : NONE;
  const m4 = high ? new Float64Array(cells) : NONE;
  if (powers) {
    const [m3s, m4s] = [of(columns.m3), of(columns.m4)];
    for (let row = 0; row < cell.length; row += 1) {
      const to = cell[row] as number;
      const size = n[row] as number;
      if (to >= 0 && size > 0) {
        const d = distance(means[row] as number, mean[to] as number);
        const two = m2s[row] as number;
        const square = d * d;
        (m2[to] as number) += two + size * square;
        if (high) {
          const [three, four] = [m3s[row] as number, m4s[row] as number];
          // No distance takes nothing of an infinite spread: 0 × ∞ would be NaN.
          (m3[to] as number) += d === 0 ? three : three + 3 * d * two + size * square * d;
          (m4[to] as number) +=
            d === 0 ? four : four + 4 * d * three + 6 * square * two + size * square * square;
        }
      }
    }
  }
  const [m2Error, m4Error] = any.rounding ? errors(table, first, cell, cells) : [NONE, NONE];
  const [min, max] = needs.extremes ? extremes(table, first, cell, cells) : [NONE, NONE];
  return {
    count,
    mean,
    m2,
    m3,
    m4,
    min,
    max,
    nonFinite: counted('nonFinite', table, first, cell, cells),
    nearZero: counted('nearZero', table, first, cell, cells),
    m2Error,
    m4Error
  };
}

/** How far a row's mean lies from its cell's. Where a mean is not known, moments are about zero. */
function distance(mean: number, middle: number): number {
  if (Number.isNaN(middle)) {
    return Number.isNaN(mean) ? 0 : Number.isFinite(mean) ? mean : Number.NaN;
  }
  // A row that is its cell's only one lies at no distance, also where the mean is not finite.
  return mean === middle ? 0 : mean - middle;
}

/** Rows of which no two are merged: views of their columns. */
export function rowsAsTheyAre(table: IMergeRows, first: number, rows: number): IMergedMoments {
  const own = Int32Array.from({ length: table.any.rounding ? rows : 0 }, (_, row) => row);
  const [m2Error, m4Error] = table.any.rounding ? errors(table, first, own, rows) : [NONE, NONE];
  return { ...byName(ALIKE, name => table.columns[name].subarray(first, first + rows)), m2Error, m4Error };
}

/** The worst case of sums of x² and x⁴ that are each off by a row's rounding. */
function errors(
  { columns }: IMergeRows,
  first: number,
  cell: Int32Array,
  cells: number
): [Float64Array, Float64Array] {
  const [two, four] = [new Float64Array(cells), new Float64Array(cells)];
  for (let row = 0; row < cell.length; row += 1) {
    const [from, to] = [first + row, cell[row] as number];
    const size = columns.count[from] as number;
    const rounding = columns.rounding[from] as number;
    if (to >= 0 && size > 0 && rounding > 0) {
      const mean = columns.mean[from] as number;
      const square = Number.isNaN(mean) ? 0 : mean ** 2;
      const variance = Math.max((columns.m2[from] as number) / size, 0);
      (two[to] as number) += 3 * rounding * size * (variance + square);
      (four[to] as number) += rounding * size * (variance * variance + 14 * square * square);
    }
  }
  return [two, four];
}

/** Least and greatest of each cell: what is not known of one row is not known of the cell. */
function extremes(
  { columns }: IMergeRows,
  first: number,
  cell: Int32Array,
  cells: number
): [Float64Array, Float64Array] {
  const min = new Float64Array(cells).fill(Infinity);
  const max = new Float64Array(cells).fill(-Infinity);
  for (let row = 0; row < cell.length; row += 1) {
    const [from, to] = [first + row, cell[row] as number];
    if (to >= 0 && (columns.count[from] as number) > 0) {
      // Math.min passes NaN on, a comparison would not.
      min[to] = Math.min(min[to] as number, columns.min[from] as number);
      max[to] = Math.max(max[to] as number, columns.max[from] as number);
    }
  }
  return [min, max];
}

function counted(
  name: 'nonFinite' | 'nearZero',
  { columns, any }: IMergeRows,
  first: number,
  cell: Int32Array,
  cells: number
): Float64Array {
  const sums = new Float64Array(cells);
  if (any[name]) {
    for (let row = 0; row < cell.length; row += 1) {
      const to = cell[row] as number;
      if (to >= 0) {
        (sums[to] as number) += columns[name][first + row] as number;
      }
    }
  }
  return sums;
}

import type { ScalarsOptions } from '../protocol/views.generated';
import { own } from '../protocol/own';
import type { IScalarColumns } from '../store/source';
import { decimate } from './decimate';
import { trailingMean } from './trailing-mean';

/** One named scalar as it is drawn. All arrays have one length. */
export interface IScalarSeries {
  readonly name: string;
  readonly unit: string;
  readonly step: Float64Array;
  /** Seconds since the epoch. */
  readonly time: Float64Array;
  /** The numbers as they came. */
  readonly raw: Float64Array;
  /** Their trailing mean, or the same numbers where nothing is smoothed. */
  readonly value: Float64Array;
  /** Points before decimation; more than are here when some were left out. */
  readonly of: number;
  /** Non-finite points before decimation. */
  readonly nonFinite: number;
}

/** Which scalars to shape and how. */
export interface IScalarShape extends Pick<ScalarsOptions, 'names' | 'steps' | 'x' | 'smoothing'> {
  /** About how many points of a series are drawn at most; 4000 when absent. */
  points?: number;
}

/** The names that a view draws: those that it names, else every name that has 'loss' in it, else all. */
export function chosenNames(present: Iterable<string>, names?: readonly string[] | null): string[] {
  const all = [...new Set(present)];
  if (names) {
    return names.filter(name => all.includes(name));
  }
  const losses = all.filter(name => name.includes('loss'));
  return losses.length > 0 ? losses : all;
}

/**
 * Cut, smooth and thin out scalars for drawing. Smoothing comes first, so that it is over every point, drawn or not.
 *
 * @param columns - Scalars of a source.
 * @param shape - What to draw.
 * @returns One series per name, in the order of the names.
 */
export function scalarSeries(columns: IScalarColumns, shape: IScalarShape): IScalarSeries[] {
  const names = chosenNames(Object.keys(columns.units), shape.names);
  const [from, to] = shape.steps ?? [-Infinity, Infinity];
  const byName = new Map<string, number[]>(names.map(name => [name, []]));
  columns.step.forEach((step, row) => {
    if (step >= from && step <= to) {
      byName.get(columns.name[row] ?? '')?.push(row);
    }
  });
  return names.map(wanted => {
    const indices = byName.get(wanted) ?? [];
    const pick = (column: Float64Array): Float64Array =>
      Float64Array.from(indices, index => column[index] ?? Number.NaN);
    const series = { step: pick(columns.step), time: pick(columns.time), raw: pick(columns.value) };
    const smooth = trailingMean(series.raw, shape.smoothing ?? 0);
    const x = shape.x === 'time' ? series.time : series.step;
    const { kept, of } = decimate(x, smooth, shape.points ?? 4000);
    const stay = (column: Float64Array): Float64Array =>
      Float64Array.from(kept, index => column[index] ?? Number.NaN);
    return {
      name: wanted,
      unit: own(columns.units, wanted) ?? '',
      step: stay(series.step),
      time: stay(series.time),
      raw: stay(series.raw),
      value: stay(smooth),
      of,
      nonFinite: series.raw.reduce((sum, point) => sum + (Number.isFinite(point) ? 0 : 1), 0)
    };
  });
}

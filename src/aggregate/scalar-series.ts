import type { ScalarsOptions } from '../protocol/views.generated';
import type { IScalarColumns } from '../store/source';
import { decimate } from './decimate';
import { loadArquero } from './load-arquero';
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
export async function scalarSeries(columns: IScalarColumns, shape: IScalarShape): Promise<IScalarSeries[]> {
  const { table } = await loadArquero();
  const names = chosenNames(Object.keys(columns.units), shape.names);
  const [from, to] = shape.steps ?? [-Infinity, Infinity];
  const { step, time, value, name } = columns;
  const rows = table({ step, time, value, name })
    .params({ wanted: names, from, to })
    .filter((row: IRow, $: IParams) => row.step >= $.from && row.step <= $.to)
    .reify();
  const all = {
    step: rows.array('step'),
    time: rows.array('time'),
    value: rows.array('value'),
    name: rows.array('name')
  };
  const byName = new Map<string, ArrayLike<number>>();
  for (const indices of rows.groupby('name').partitions() as Iterable<Uint32Array>) {
    byName.set(String(all.name[indices[0] ?? 0]), indices);
  }
  return names.map(wanted => {
    const indices = byName.get(wanted) ?? [];
    const pick = (column: ArrayLike<unknown>): Float64Array =>
      Float64Array.from(indices, index => Number(column[index]));
    const series = { step: pick(all.step), time: pick(all.time), raw: pick(all.value) };
    const smooth = trailingMean(series.raw, shape.smoothing ?? 0);
    const x = shape.x === 'time' ? series.time : series.step;
    const { kept, of } = decimate(x, smooth, shape.points ?? 4000);
    const stay = (column: Float64Array): Float64Array =>
      Float64Array.from(kept, index => column[index] ?? Number.NaN);
    return {
      name: wanted,
      unit: columns.units[wanted] ?? '',
      step: stay(series.step),
      time: stay(series.time),
      raw: stay(series.raw),
      value: stay(smooth),
      of,
      nonFinite: series.raw.reduce((sum, point) => sum + (Number.isFinite(point) ? 0 : 1), 0)
    };
  });
}

interface IRow {
  step: number;
}

interface IParams {
  from: number;
  to: number;
}

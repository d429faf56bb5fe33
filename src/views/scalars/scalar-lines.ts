import type { IScalarSeries } from '../../aggregate';
import { COLORS, type Row } from '../../charts';
import { placeNear } from '../shared/places';

/** One named scalar as the picture sees it. */
export interface ILine extends IScalarSeries {
  /** Number of the unit's panel, from 0. */
  panel: number;
  /** Steps, or milliseconds since the epoch as Vega's time formats take them. */
  xs: Float64Array;
  /** Whether `value` differs from `raw`. */
  smoothed: boolean;
}

/** Number the units as they come and give each series its x; names without a row are left out. */
export function linesOf(series: readonly IScalarSeries[], smoothed: boolean, x: 'step' | 'time'): ILine[] {
  const present = series.filter(each => each.of > 0);
  const units = [...new Set(present.map(each => each.unit))];
  return present.map(each => ({
    ...each,
    panel: units.indexOf(each.unit),
    xs: x === 'step' ? each.step : each.time.map(seconds => seconds * 1000),
    smoothed
  }));
}

/** Return the rows of a line as the template takes them. */
export function rowsOf(line: ILine): Row[] {
  const { xs } = line;
  const row = (at: number, value: number | undefined, kind: string): Row => ({
    x: xs[at],
    name: line.name,
    value: Number.isFinite(value) ? value : null,
    panel: line.panel,
    kind,
    color: COLORS.nonfinite[0]
  });
  const all = (values: Float64Array, kind: string): Row[] =>
    Array.from(values, (value, at) => row(at, value, kind));
  return [
    ...all(line.raw, line.smoothed ? 'faint' : 'line'),
    ...(line.smoothed ? all(line.value, 'line') : []),
    ...Array.from(line.raw.keys())
      .filter(at => !Number.isFinite(line.raw[at]))
      .map(at => row(at, NaN, 'nonfinite'))
  ];
}

/** Return the place of the ascending number nearest to x, or null when there is none. */
export function closest(xs: ArrayLike<number>, x: number): number | null {
  const at = placeNear(xs, x);
  return at < 0 ? null : at;
}

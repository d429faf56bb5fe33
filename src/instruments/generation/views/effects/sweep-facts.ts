import type { IEffect, IEffects } from '../../store/effects';
import type { IRange } from './places-picture';
import { divergenceOf, layersOf } from './effects-subject';
import type { Measure } from './positions-picture';

export interface ISweepPoint {
  /** From 0. */
  readonly point: number;
  readonly setting: string;
  /** NaN where the setting is no number. */
  readonly value: number;
}

/** A measure over the points of a sweep, of the logits or of one layer: mean and range over sequences. */
export interface ISweepSeries extends IRange {
  /** Null where it is of the logits. */
  readonly layer: number | null;
  readonly mean: Float64Array;
  /** Sequences that have the measure. */
  readonly count: Float64Array;
}

export interface ISweep {
  /** By number where every setting is another one, else in their order. */
  readonly points: readonly ISweepPoint[];
  readonly isNumeric: boolean;
  readonly rows: readonly IEffect[];
}

/** Put the points of a sweep together. */
export function sweepOf({ rows }: IEffects): ISweep {
  const own = rows.filter(({ point, position }) => point >= 0 && position < 0);
  const points = [...new Map(own.map(row => [row.point, row])).values()]
    .map(({ point, setting, value }) => ({ point, setting, value }))
    .sort((a, b) => a.point - b.point);
  const isNumeric =
    points.every(({ value }) => Number.isFinite(value)) &&
    new Set(points.map(({ value }) => value)).size === points.length;
  return {
    points: isNumeric ? points.sort((a, b) => a.value - b.value) : points,
    isNumeric,
    rows: own
  };
}

/** A measure over the points, of each layer where it is a distance. */
export function sweepSeries({ points, rows }: ISweep, measure: Measure): ISweepSeries[] {
  const isByLayer = measure === 'distance';
  const layers = isByLayer ? layersOf(rows) : [null];
  const places = new Map(points.map(({ point }, at) => [point, at]));
  return layers.map(layer => {
    const found = points.map((): Map<number, number> => new Map());
    for (const row of rows) {
      if (row.layer === (layer ?? -1)) {
        found[places.get(row.point) ?? -1]?.set(row.sequence, valueOf(row, measure));
      }
    }
    const known = found.map(each => [...each.values()].filter(Number.isFinite));
    const column = (of: (values: number[]) => number): Float64Array =>
      Float64Array.from(known, values => (values.length === 0 ? NaN : of(values)));
    return {
      layer,
      mean: column(values => values.reduce((sum, each) => sum + each, 0) / values.length),
      low: column(values => Math.min(...values)),
      high: column(values => Math.max(...values)),
      count: Float64Array.from(known, ({ length }) => length)
    };
  });
}

export const sequencesIn = ({ rows }: ISweep): number => new Set(rows.map(({ sequence }) => sequence)).size;

function valueOf(row: IEffect, measure: Measure): number {
  return measure === 'divergence' ? (divergenceOf(row) ?? NaN) : row[measure];
}

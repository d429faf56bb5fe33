import { decimate, type ILayerTrend } from '../../aggregate';
import {
  COLORS,
  ColorScale,
  formatInteger,
  lowMagnitude,
  paint,
  toPicture,
  type IRecipe,
  type Row
} from '../../charts';
import type { IContent } from '../shared/content';
import { omissionWords } from '../shared/describe';
import { colorStrip, extentOf, padded, scaleOf, wide } from '../shared/scale';
import type { Translate } from '../shared/translate';

/** Most columns that a layer × step picture has. */
const MOST_COLUMNS = 4096;
/** Most points that one line is drawn with. */
const MOST_POINTS = 2000;

/** A trend to draw. */
export interface ITrendWish {
  readonly series: readonly ILayerTrend[];
  /** Every step that some layer has, ascending; at least one. */
  readonly steps: readonly number[];
  readonly transform: 'linear' | 'log';
  /** The statistic in words. */
  readonly statistic: string;
  /** Newest step of which rows are gone: up to there a layer's row stands for those that followed it. */
  readonly filledTo?: number | null;
}

/** A trend's chart, with what its caption must add. */
export interface ITrendPicture {
  readonly recipe: IRecipe;
  readonly extent: IContent['extent'];
  readonly caption: readonly string[];
  /** Steps that one column stands for; 0 for lines. */
  readonly spacing: number;
}

const ends = (values: readonly number[]): [number, number] => [
  values[0] ?? 0,
  values[values.length - 1] ?? 0
];

/** The ends of a layer's band at each of its points that has one, else the points themselves. */
function banded({ values, half }: ILayerTrend): number[] {
  return values.flatMap((value, at) => {
    const width = half?.[at] ?? 0;
    return Number.isFinite(width) ? [value - width, value + width] : [value];
  });
}

/** Return the chart with one line a layer. */
export function trendLines(wish: ITrendWish, t: Translate): ITrendPicture {
  const { series, steps, transform, statistic } = wish;
  const y = padded(extentOf(series.map(banded)), transform === 'log');
  const yScale = scaleOf(transform, y[0]);
  const x = wide(ends(steps));
  const [firstLayer, lastLayer] = ends(series.map(each => each.layer));
  let decimatedFrom = 0;
  const band: Row[] = [];
  const rows = series.flatMap(({ layer, steps: at, values, half }) => {
    const { kept, of } = decimate(Float64Array.from(at), Float64Array.from(values), MOST_POINTS);
    decimatedFrom = kept.length < of ? Math.max(decimatedFrom, of) : decimatedFrom;
    return Array.from(kept, place => {
      const value = values[place] ?? NaN;
      const width = half?.[place] ?? NaN;
      if (half) {
        const known = Number.isFinite(value) && Number.isFinite(width);
        band.push({
          step: at[place],
          layer,
          low: known ? Math.max(value - width, y[0]) : null,
          high: known ? value + width : null
        });
      }
      return { step: at[place], layer, value: Number.isFinite(value) ? value : null };
    });
  });
  const nonfinite = series.flatMap(({ layer, steps: at, nonFinite }) =>
    nonFinite.flatMap((count, place) =>
      count > 0 ? [{ step: at[place], layer, count, color: COLORS.nonfinite[0] }] : []
    )
  );
  return {
    extent: { x, y },
    spacing: 0,
    caption: [
      ...(yScale === 'symlog' ? [t('The axis is logarithmic on both sides of zero.')] : []),
      ...omissionWords({ decimatedFrom }, t)
    ],
    recipe: {
      template: 'trend-lines',
      texts: { xTitle: t('step'), yTitle: statistic, colorTitle: t('layer'), yScale },
      params: { x0: x[0], x1: x[1], y0: y[0], y1: y[1], firstLayer, lastLayer },
      datasets: { rows, band, nonfinite },
      height: 300
    }
  };
}

/** Return the least distance of two neighbouring steps; 1 when there is only one. */
function smallestGap(steps: readonly number[]): number {
  const gaps = steps.slice(1).map((step, at) => step - (steps[at] ?? 0));
  return gaps.reduce((least, gap) => Math.min(least, gap), gaps[0] ?? 1);
}

/** Let each cell of a row stand for the missing ones that follow it, up to a column. */
function fill(values: Float64Array, missing: Uint8Array, columns: number, upTo: number): void {
  for (let row = 0; row < values.length; row += columns) {
    for (let cell = row + 1; cell <= row + upTo; cell++) {
      if (missing[cell] === 1 && missing[cell - 1] === 0) {
        values[cell] = values[cell - 1] ?? NaN;
        missing[cell] = 0;
      }
    }
  }
}

/** Return the chart as layer × step, drawn as one picture. Steps and layers without a row stay blank. */
export function trendHeatmap(wish: ITrendWish, t: Translate): ITrendPicture {
  const { series, steps, transform, statistic, filledTo = null } = wish;
  const [first, last] = ends(steps);
  const [top, bottom] = ends(series.map(each => each.layer));
  const caption: string[] = [];
  let spacing = smallestGap(steps);
  if ((last - first) / spacing + 1 > MOST_COLUMNS) {
    spacing = (last - first) / (MOST_COLUMNS - 1);
    caption.push(
      t('One column stands for about %1 steps; the last of them is drawn.', formatInteger(spacing))
    );
  }
  const columns = Math.round((last - first) / spacing) + 1;
  const rows = bottom - top + 1;
  const values = new Float64Array(columns * rows);
  const missing = new Uint8Array(columns * rows).fill(1);
  for (const each of series) {
    each.steps.forEach((step, at) => {
      const cell = (each.layer - top) * columns + Math.round((step - first) / spacing);
      values[cell] = each.values[at] ?? NaN;
      missing[cell] = 0;
    });
  }
  if (filledTo !== null) {
    fill(values, missing, columns, Math.round((Math.min(filledTo, last) - first) / spacing));
    caption.push(
      t(
        'Up to step %1 rows are thinned out: each is drawn up to the next one that is kept.',
        formatInteger(filledTo)
      )
    );
  }
  const low = transform === 'log' ? lowMagnitude(series.map(each => each.values)) : NaN;
  const scale = new ColorScale(extentOf(series.map(each => each.values)), transform, low);
  const unfinished = series.some(each => each.values.some(value => !Number.isFinite(value)));
  const strip = colorStrip(scale, unfinished, t);
  const [x0, x1, y0, y1] = [first - spacing / 2, last + spacing / 2, top - 0.5, bottom + 0.5];
  const picture = toPicture(paint({ rows, columns, values, missing }, scale));
  return {
    extent: { x: [x0, x1], y: [y0, y1] },
    spacing,
    caption,
    recipe: {
      template: 'trend-heatmap',
      texts: { xTitle: t('step'), yTitle: t('layer'), legendTitle: statistic },
      params: { x0, x1, y0, y1, ...strip.params },
      datasets: { pictures: [{ ...picture, x: x0, x2: x1, y: y0, y2: y1 }], legend: strip.rows },
      height: Math.min(420, Math.max(160, rows * 14))
    }
  };
}

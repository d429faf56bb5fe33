import { formatNumber, legend, paint, toPicture, type Row } from '../charts';
import type { IContent } from './content';
import type { ILayer, IShown } from './heatmap-data';
import type { ISlice } from './matrix';
import type { Translate } from './translate';

/** Least width in pixels of one picture of a grid, and what axes and legend take beside the grid. */
const LEAST_WIDTH = 250;
const MARGINS = 90;

const PICTURES = new WeakMap<ISlice, { key: string; row: Row }>();

/** Paint a layer, or take the picture from the last time when nothing about it changed. */
function pictureOf({ layer, slice, scale }: ILayer): Row {
  const key = `${layer} ${scale.domain.join()} ${scale.transform}`;
  const known = PICTURES.get(slice);
  if (known?.key === key) {
    return known.row;
  }
  const edges = { x: -0.5, x2: slice.columns - 0.5, y: -0.5, y2: slice.rows - 0.5 };
  const row: Row = { layer, ...toPicture(paint(slice, scale)), ...edges };
  PICTURES.set(slice, { key, row });
  return row;
}

function header({ layer, slice, scale }: ILayer, own: boolean, t: Translate): string {
  const name = t('layer %1', layer);
  const [lo, hi] = scale.domain;
  return own && slice.extent ? t('%1, %2 to %3', name, formatNumber(lo, 3), formatNumber(hi, 3)) : name;
}

/**
 * Return the chart of a heatmap.
 *
 * @param own Whether each layer has a scale of its own.
 * @param width Pixels that the whole may take.
 */
export function heatmapRecipe(
  shown: IShown,
  own: boolean,
  width: number,
  t: Translate
): Pick<IContent, 'recipe' | 'extent' | 'rows'> {
  const { layers, axes } = shown;
  const single = layers.length === 1;
  const most = Math.max(1, Math.floor((width - MARGINS) / LEAST_WIDTH));
  const x = [-0.5, Math.max(...layers.map(each => each.slice.columns)) - 0.5] as const;
  const y = [-0.5, Math.max(...layers.map(each => each.slice.rows)) - 0.5] as const;
  const words = { lowest: t('lowest'), highest: t('highest'), notFinite: t('not finite') };
  const strip = layers[0] && legend(layers[0].scale, shown.nonFinite > 0, words, own && !single);
  const rows = Math.ceil(layers.length / most);
  return {
    extent: { x, y },
    rows,
    recipe: {
      template: 'heatmap',
      texts: { xTitle: t(axes.x), yTitle: axes.y ? t(axes.y) : '', legendTitle: t('value') },
      params: {
        x0: x[0],
        x1: x[1],
        y0: y[0],
        y1: y[1],
        tokens: shown.tokens,
        headers: Object.fromEntries(layers.map(each => [each.layer, single ? '' : header(each, own, t)])),
        ...strip?.params
      },
      datasets: { pictures: layers.map(pictureOf), legend: strip?.rows ?? [] },
      // Rows of about equal length.
      columns: Math.ceil(layers.length / rows),
      height: single ? (axes.transposed ? 300 : 360) : layers.length <= 4 ? 170 : 120
    }
  };
}

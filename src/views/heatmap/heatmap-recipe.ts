import { axisWords } from '../shared/describe';
import { formatNumber, type IRecipe, type Pictures, type Row } from '../../charts';
import type { IContent } from '../shared/content';
import type { ILayer, IShown } from './heatmap-data';
import { layerName } from '../shared/layers';
import { axisParams, colorStrip } from '../shared/scale';
import type { Translate } from '../shared/translate';

/** Least width in pixels of one picture of a grid, and what axes and legend take beside the grid. */
const LEAST_WIDTH = 250;
const MARGINS = 90;

/** Return the rows of the pictures, and forget those of layers that are not shown. */
function pictureRows(layers: readonly ILayer[], pictures: Pictures): Row[] {
  pictures.keep(layers.map(each => each.layer));
  return layers.map(({ layer, slice, scale }) => ({
    layer,
    ...pictures.draw(layer, slice, scale),
    x: -0.5,
    x2: slice.columns - 0.5,
    y: -0.5,
    y2: slice.rows - 0.5
  }));
}

function header({ layer, slice, scale }: ILayer, own: boolean, t: Translate): string {
  const name = layerName(layer, t);
  const [lo, hi] = scale.domain;
  return own && slice.extent ? t('%1, %2 to %3', name, formatNumber(lo, 3), formatNumber(hi, 3)) : name;
}

/**
 * Return the chart of a heatmap.
 *
 * @param pictures The view's pictures, which are painted over.
 */
export function heatmapRecipe(
  shown: IShown,
  own: boolean,
  width: number,
  pictures: Pictures,
  t: Translate
): Pick<IContent, 'extent' | 'rows'> & { recipe: IRecipe } {
  const { layers, axes } = shown;
  const single = layers.length === 1;
  const most = Math.max(1, Math.floor((width - MARGINS) / LEAST_WIDTH));
  const x = [-0.5, Math.max(...layers.map(each => each.slice.columns)) - 0.5] as const;
  const y = [-0.5, Math.max(...layers.map(each => each.slice.rows)) - 0.5] as const;
  const strip = layers[0] && colorStrip(layers[0].scale, shown.nonFinite > 0, t, own && !single);
  const rows = Math.ceil(layers.length / most);
  return {
    extent: { x, y },
    rows,
    recipe: {
      template: 'heatmap',
      texts: {
        xTitle: axisWords(axes.x, t),
        yTitle: axes.y ? axisWords(axes.y, t) : '',
        legendTitle: t('value')
      },
      params: {
        ...axisParams(x, y),
        tokens: shown.tokens,
        headers: Object.fromEntries(layers.map(each => [each.layer, single ? '' : header(each, own, t)])),
        ...strip?.params
      },
      datasets: { pictures: pictureRows(layers, pictures), legend: strip?.rows ?? [] },
      painted: pictures.painted,
      // Rows of about equal length.
      columns: Math.ceil(layers.length / rows),
      height: single ? (axes.transposed ? 300 : 360) : layers.length <= 4 ? 170 : 120
    }
  };
}

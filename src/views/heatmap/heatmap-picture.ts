import { formatFull, formatInteger, formatNumber, Pictures, type IRecipe } from '../../charts';
import { CellPicture, type ICellWords } from '../kits/matrix/matrix-picture';
import type { IContent } from '../shared/content';
import { axisWords } from '../shared/describe';
import { layerName } from '../shared/layers';
import { axisParams, colorStrip, type IGridCell } from '../shared/scale';
import type { Translate } from '../shared/translate';
import { valueIn, type ILayer, type IShown } from './heatmap-data';
import { positionWords } from './heatmap-words';

/** Least width in pixels of one picture of a grid, and what axes and legend take beside the grid. */
const LEAST_WIDTH = 250;
const MARGINS = 90;

/** The pictures of a heatmap, one a layer. */
export class HeatmapPicture extends CellPicture {
  protected override readonly turns = true;

  /** @param isOwn - Whether each layer has a scale of its own. */
  draw(
    shown: IShown,
    isOwn: boolean,
    width: number
  ): Pick<IContent, 'extent' | 'rows'> & { recipe: IRecipe } {
    this._shown = shown;
    this.plots = shown.layers.map(({ layer, slice: { columns, rows } }) => ({
      facet: ['layer', layer],
      x: [-0.5, columns - 0.5],
      xs: Array.from({ length: columns }, (_, column) => column),
      half: 0.5,
      ys: Array.from({ length: rows }, (_, row) => row),
      axis: null
    }));
    return this.drawn(shown, isOwn, width, this._pictures);
  }

  /**
   * The same as nobody points at it.
   *
   * @param pictures - Those that are painted over.
   */
  drawn(
    { axes, layers, nonFinite, tokens }: IShown,
    isOwn: boolean,
    width: number,
    pictures = new Pictures()
  ): Pick<IContent, 'extent' | 'rows'> & { recipe: IRecipe } {
    const { t } = this;
    const single = layers.length === 1;
    const most = Math.max(1, Math.floor((width - MARGINS) / LEAST_WIDTH));
    const x = [-0.5, Math.max(...layers.map(({ slice }) => slice.columns)) - 0.5] as const;
    const y = [-0.5, Math.max(...layers.map(({ slice }) => slice.rows)) - 0.5] as const;
    const strip = layers[0] && colorStrip(layers[0].scale, nonFinite > 0, t, isOwn && !single);
    const rows = Math.ceil(layers.length / most);
    pictures.keep(layers.map(({ layer }) => layer));
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
          tokens,
          headers: Object.fromEntries(layers.map(each => [each.layer, single ? '' : header(each, isOwn, t)])),
          ...strip?.params
        },
        datasets: {
          pictures: layers.map(({ layer, slice, scale }) => ({
            layer,
            ...pictures.draw(layer, slice, scale),
            ...{ x: -0.5, x2: slice.columns - 0.5, y: -0.5, y2: slice.rows - 0.5 }
          })),
          legend: strip?.rows ?? []
        },
        painted: pictures.painted,
        // Rows of about equal length.
        columns: Math.ceil(layers.length / rows),
        height: single ? (axes.transposed ? 300 : 360) : layers.length <= 4 ? 170 : 120
      }
    };
  }

  protected words({ column, row, plot = 0 }: IGridCell): ICellWords {
    const { t, _shown: shown } = this;
    const of = shown?.layers[plot];
    if (!shown || !of) {
      return { tip: null, said: '', value: '' };
    }
    const found = valueIn(of.slice, row * of.slice.columns + column);
    const value = found === null ? t('nothing') : formatFull(found, true);
    const { axes, step, text } = shown;
    const [heading, x, y] = [layerName(of.layer, t), axisWords(axes.x, t), axes.y && axisWords(axes.y, t)];
    const where = positionWords(shown, column);
    return {
      tip: {
        heading,
        lines: [
          { name: t('value'), value },
          { name: x, value: where },
          ...(y ? [{ name: y, value: formatInteger(row) }] : []),
          ...(text ? [] : [{ name: t('step'), value: formatInteger(step) }])
        ]
      },
      said: t('%1, %2%3: %4', heading, `${x} ${where}`, y ? `, ${y} ${row}` : '', value),
      value
    };
  }

  private _shown: IShown | null = null;
  private readonly _pictures = new Pictures();
}

function header({ layer, slice, scale }: ILayer, own: boolean, t: Translate): string {
  const name = layerName(layer, t);
  const [lo, hi] = scale.domain;
  return own && slice.extent ? t('%1, %2 to %3', name, formatNumber(lo, 3), formatNumber(hi, 3)) : name;
}

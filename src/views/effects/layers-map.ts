import {
  ColorScale,
  formatInteger,
  formatNumber,
  lowMagnitude,
  Pictures,
  type IMatrix,
  type IPlace,
  type Row
} from '../../charts';
import type { IContent, IMark, IMoved } from '../shared/content';
import { layerName } from '../shared/layers';
import { hold, moveOf } from '../shared/places';
import { rowPlaces } from '../shared/row-places';
import { colorStrip, extentOf } from '../shared/scale';
import type { ITip } from '../shared/tip';
import { tokenLabels, tokenTicks, type ITokenWindow } from '../shared/token-axis';
import type { Translate } from '../shared/translate';
import { comparedName, divergenceRows, nextLines, type IComparedTexts } from './compared-texts';
import { measureWords, RULE_COLOR } from './positions-picture';
import type { ISequenceEffects } from './position-facts';

/** Pixels of a layer, and of all. */
const ROW = { each: 16, least: 170, most: 640 };

/** How far hidden states are from the clean ones, layer × position, the deepest layer on top. */
export class LayersMap {
  constructor(private readonly _t: Translate) {}

  /** Draw a sequence. */
  draw(
    effects: ISequenceEffects,
    texts: IComparedTexts,
    transform: 'linear' | 'log',
    axis: ITokenWindow
  ): Pick<IContent, 'extent' | 'recipe'> {
    const { _t: t } = this;
    this._effects = effects;
    this._texts = texts;
    this._rows = [...effects.layers].reverse();
    const matrix = this._matrix(axis);
    const scale = new ColorScale(
      extentOf([matrix.values]),
      transform,
      transform === 'log' ? lowMagnitude([matrix.values]) : NaN
    );
    const unfinished = matrix.values.some((value, at) => !Number.isFinite(value) && matrix.missing[at] === 0);
    const strip = colorStrip(scale, unfinished, t);
    const { height, labelled } = rowPlaces(this._rows.length, ROW);
    const y = [-0.5, this._rows.length - 0.5] as const;
    const [x0, x1] = axis.shown;
    return {
      recipe: {
        template: 'token-map',
        texts: {
          xTitle: t('token of the clean text, and its position'),
          yTitle: t('layer'),
          ...tokenTicks('cell_width'),
          legendTitle: measureWords('distance', t)
        },
        params: {
          x0,
          x1,
          y0: y[0],
          y1: y[1],
          rowAt: labelled,
          rowText: labelled.map(row => formatInteger(this._rows[row] ?? NaN)),
          labels: tokenLabels(texts.clean, axis),
          ...strip.params
        },
        datasets: {
          pictures: [
            { ...this._pictures.draw(0, matrix, scale), x: axis.x[0], x2: axis.x[1], y: y[0], y2: y[1] }
          ],
          rules: divergenceRows(texts, RULE_COLOR, t) as Row[],
          legend: strip.rows
        },
        painted: this._pictures.painted,
        height
      },
      extent: { x: axis.x, y }
    };
  }

  probe({ x, y }: IPlace): IMark | null {
    const [row, column] = [Math.round(y), this._columnOf(Math.round(x))];
    if (row < 0 || row >= this._rows.length || column < 0) {
      return null;
    }
    this._at = { row, column };
    return this._markOf(row, column);
  }

  tipOf(mark: IMark): ITip | null {
    const { _t: t, _texts: texts } = this;
    const { layer, effect } = this._cellOf(mark);
    if (layer === undefined || !effect || !texts) {
      return null;
    }
    return {
      heading: `${layerName(layer, t)}, ${comparedName(texts, effect.position, t)}`,
      lines: [
        { name: t('relative distance'), value: formatNumber(effect.distances.get(layer) ?? NaN, 3) },
        ...nextLines(texts, effect.position, t)
      ]
    };
  }

  move(key: string): IMoved | null {
    const by = moveOf(key);
    const positions = this._effects?.positions ?? [];
    if (by === undefined || positions.length === 0 || !this._texts) {
      return null;
    }
    const before = this._at;
    const column = hold((before?.column ?? 0) + (before ? by[0] : 0), positions.length);
    const row = hold((before?.row ?? 0) + (before ? by[1] : 0), this._rows.length);
    this._at = { row, column };
    const mark = this._markOf(row, column);
    const { layer = 0, effect } = this._cellOf(mark);
    const value = formatNumber(effect?.distances.get(layer) ?? NaN, 3);
    const where = comparedName(this._texts, effect?.position ?? 0, this._t);
    const said = this._t('%1, %2: %3', layerName(layer, this._t), where, value);
    return key === 'copy' ? { said, mark, copy: value } : { said, mark };
  }

  /** The largest distance: where, and how large; null where none is finite. */
  get peak(): { readonly mark: IMark; readonly words: string } | null {
    let best: { row: number; column: number; value: number } | null = null;
    for (const [column, { distances }] of (this._effects?.positions ?? []).entries()) {
      for (const [row, layer] of this._rows.entries()) {
        const value = distances.get(layer) ?? NaN;
        if (Number.isFinite(value) && value > (best?.value ?? -Infinity)) {
          best = { row, column, value };
        }
      }
    }
    const { _texts: texts, _t: t } = this;
    if (best === null || !texts) {
      return null;
    }
    const words = t(
      'Hidden states move most in %1 at %2: %3 of their norm.',
      layerName(this._rows[best.row] ?? 0, t),
      comparedName(texts, this._effects?.positions[best.column]?.position ?? 0, t),
      formatNumber(best.value, 3)
    );
    return { mark: this._markOf(best.row, best.column), words };
  }

  /** Layer and position of a mark. */
  placeOf(mark: IMark): { readonly layer: number | null; readonly position: number | null } {
    const { layer, effect } = this._cellOf(mark);
    return { layer: layer ?? null, position: effect?.position ?? null };
  }

  /** A whole row; null where the layer is not drawn. */
  rowOf(layer: number, x: readonly [number, number]): IMark | null {
    const row = this._rows.indexOf(layer);
    return row < 0 ? null : { facet: null, x, y: [row - 0.5, row + 0.5] };
  }

  private _matrix({ x }: ITokenWindow): IMatrix & { values: Float64Array; missing: Uint8Array } {
    const [rows, columns] = [this._rows.length, x[1] - x[0]];
    const values = new Float64Array(rows * columns).fill(NaN);
    const missing = new Uint8Array(rows * columns).fill(1);
    for (const { position, distances } of this._effects?.positions ?? []) {
      this._rows.forEach((layer, row) => {
        const [value, cell] = [distances.get(layer), row * columns + position - (x[0] + 0.5)];
        if (value !== undefined) {
          values[cell] = value;
          missing[cell] = 0;
        }
      });
    }
    return { rows, columns, values, missing };
  }

  private _cellOf({ x, y }: IMark): {
    layer: number | undefined;
    effect: ISequenceEffects['positions'][number] | undefined;
  } {
    const column = this._columnOf((x[0] + x[1]) / 2);
    return {
      layer: y === null ? undefined : this._rows[Math.round((y[0] + y[1]) / 2)],
      effect: this._effects?.positions[column]
    };
  }

  private _markOf(row: number, column: number): IMark {
    const position = this._effects?.positions[column]?.position ?? 0;
    return { facet: null, x: [position - 0.5, position + 0.5], y: [row - 0.5, row + 0.5] };
  }

  private _columnOf(position: number): number {
    return this._effects?.positions.findIndex(each => each.position === position) ?? -1;
  }

  private _effects: ISequenceEffects | null = null;
  private _texts: IComparedTexts | null = null;
  /** Layers from top to bottom. */
  private _rows: readonly number[] = [];
  private _at: { row: number; column: number } | null = null;
  private readonly _pictures = new Pictures();
}

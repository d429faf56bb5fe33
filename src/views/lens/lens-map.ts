import {
  ColorScale,
  contrastColor,
  formatInteger,
  formatNumber,
  Pictures,
  type IMatrix,
  type IPlace,
  type IRecipe,
  type Row
} from '../../charts';
import type { ILensCell, Lens } from '../../store/lens';
import type { IMark, IMoved } from '../shared/content';
import { hold, moveOf } from '../shared/places';
import { rowPlaces } from '../shared/row-places';
import { colorStrip } from '../shared/scale';
import type { ITip } from '../shared/tip';
import {
  positionName,
  tokenLabels,
  tokenTicks,
  type ITokenWindow,
  type TokenTexts
} from '../shared/token-axis';
import { fittedToken, quoted, tokenWords } from '../shared/token-text';
import type { Translate } from '../shared/translate';
import type { ILead } from './first-lead';
import { colorScale, colorValue, colorWords, type LensColor } from './lens-color';

/** Pixels of a layer, and of all. */
const ROW = { each: 20, least: 170, most: 640 };
/** Narrower cells have no text, pixels. */
export const LEAST_CELL = 24;
/** Narrower ones have no outline: nothing else would be seen of them. */
export const LEAST_OUTLINED = 8;

/** A logit lens to draw. */
export interface ILensWish {
  readonly lens: Lens;
  /** Layers that are drawn, ascending. */
  readonly layers: readonly number[];
  readonly leads: readonly ILead[];
  readonly color: LensColor;
  /** Tokens of the text. */
  readonly texts: TokenTexts;
  readonly axis: ITokenWindow;
}

/** A logit lens as layer × position, the deepest layer on top: what is drawn, what is under the pointer, and where a key goes. */
export class LensMap {
  constructor(private readonly _t: Translate) {}

  /** The keyboard's cursor. */
  at: { readonly position: number; readonly layer: number } | null = null;

  /** Draw another lens. */
  take(wish: ILensWish): IRecipe {
    this._wish = wish;
    this._rows = [...wish.layers].reverse();
    const { color, leads, lens, texts, axis } = wish;
    const matrix = this._matrix(wish);
    const scale = colorScale(matrix.values, color);
    const unfinished = matrix.values.some((value, at) => !Number.isFinite(value) && !matrix.missing[at]);
    const strip = colorStrip(scale, unfinished, this._t);
    const { height, labelled } = rowPlaces(this._rows.length, ROW);
    const [y0, y1] = [-0.5, this._rows.length - 0.5];
    const [x0, x1] = axis.shown;
    const picture = this._pictures.draw(0, matrix, scale);
    return {
      template: 'token-map',
      texts: {
        xTitle: this._t('token that was read, and its position'),
        yTitle: this._t('layer'),
        ...tokenTicks('cell_width'),
        legendTitle: colorWords(color, this._t)
      },
      params: {
        x0,
        x1,
        y0,
        y1,
        rowAt: labelled,
        rowText: labelled.map(row => formatInteger(this._rows[row] ?? NaN)),
        labels: tokenLabels(texts, axis),
        ...strip.params
      },
      datasets: {
        pictures: [{ ...picture, x: axis.x[0], x2: axis.x[1], y: y0, y2: y1 }],
        cells: this._textRows(lens, axis, color, scale),
        outlines: axis.pixels < LEAST_OUTLINED ? [] : leads.flatMap(lead => this._outline(lead, axis)),
        legend: strip.rows
      },
      painted: this._pictures.painted,
      height
    };
  }

  /** What the picture covers. */
  get y(): readonly [number, number] {
    return [-0.5, this._rows.length - 0.5];
  }

  probe({ x, y }: IPlace): IMark | null {
    const [layer, position] = [this._rows[Math.round(y)], Math.round(x)];
    if (layer === undefined || !this._wish?.lens.at(layer, position)) {
      return null;
    }
    // The keys go on from where the pointer is.
    this.at = { layer, position };
    return this.markOf(this.at);
  }

  tipOf(mark: IMark): ITip | null {
    const { _t: t } = this;
    const cell = this.cellOf(mark);
    if (!cell) {
      return null;
    }
    const final = this.finalOf(cell);
    return {
      heading: t('layer %1, %2', formatInteger(cell.layer), this._position(cell.position)),
      lines: [
        ...cell.candidates.map(({ id, text, probability }) => ({
          name: `${id === cell.token && final !== null ? '▸ ' : ''}${quoted(text)}`,
          value: formatNumber(probability, 3)
        })),
        ...(final === null
          ? []
          : [
              {
                name: t('in the end %1', final),
                value: t('%1, rank %2', formatNumber(cell.probability, 3), formatInteger(cell.rank))
              }
            ]),
        { name: t('entropy'), value: t('%1 nats', formatNumber(cell.entropy, 3)) }
      ]
    };
  }

  move(key: string): IMoved | null {
    const [by, positions] = [moveOf(key), this._wish?.lens.positions ?? []];
    if (by === undefined || positions.length === 0) {
      return null;
    }
    const before = this.at;
    const column = before ? positions.indexOf(before.position) : positions.length - 1;
    const row = before ? this._rows.indexOf(before.layer) : 0;
    const position = positions[hold(column + (before ? by[0] : 0), positions.length)] ?? 0;
    const layer = this._rows[hold(row + (before ? by[1] : 0), this._rows.length)] ?? 0;
    this.at = { position, layer };
    const mark = this.markOf(this.at);
    const cell = this._wish?.lens.at(layer, position);
    const value = cell ? this._cellWords(cell) : this._t('not read');
    const said = this._t('layer %1, %2: %3', formatInteger(layer), this._position(position), value);
    return key === 'copy' ? { said, mark, copy: value } : { said, mark };
  }

  /** The cell of a layer and position. */
  markOf({ position, layer }: { readonly position: number; readonly layer: number }): IMark {
    const row = this._rows.indexOf(layer);
    return { facet: null, x: [position - 0.5, position + 0.5], y: [row - 0.5, row + 0.5] };
  }

  /** A whole row; null where the layer is not drawn. */
  rowOf(layer: number): IMark | null {
    const [row, x] = [this._rows.indexOf(layer), this._wish?.axis.x];
    return row < 0 || !x ? null : { facet: null, x, y: [row - 0.5, row + 0.5] };
  }

  cellOf({ x, y }: IMark): ILensCell | null {
    const layer = y === null ? undefined : this._rows[Math.round((y[0] + y[1]) / 2)];
    return layer === undefined ? null : (this._wish?.lens.at(layer, (x[0] + x[1]) / 2) ?? null);
  }

  /** The token that came in the end, in quotation marks; null where none did. */
  finalOf({ candidates, position, rank, token }: ILensCell): string | null {
    const text =
      this._wish?.texts.get(position + 1) ?? candidates.find(candidate => candidate.id === token)?.text;
    return rank < 0 || !(token >= 0) ? null : text === undefined ? this._t('token %1', token) : quoted(text);
  }

  private _matrix({ lens, color, axis }: ILensWish): IMatrix & { values: Float64Array; missing: Uint8Array } {
    const first = axis.x[0] + 0.5;
    const [rows, columns] = [this._rows.length, axis.x[1] - axis.x[0]];
    const values = new Float64Array(rows * columns).fill(NaN);
    const missing = new Uint8Array(rows * columns).fill(1);
    this._rows.forEach((layer, row) => {
      for (const position of lens.positions) {
        const value = position < first ? null : colorValue(lens, lens.rowAt(layer, position), color);
        if (value !== null) {
          values[row * columns + position - first] = value;
          missing[row * columns + position - first] = 0;
        }
      }
    });
    return { rows, columns, values, missing };
  }

  /** Texts of the cells that are shown, and of as many on either side. */
  private _textRows(lens: Lens, { shown, pixels }: ITokenWindow, color: LensColor, scale: ColorScale): Row[] {
    const around = shown[1] - shown[0];
    const columns =
      pixels < LEAST_CELL
        ? []
        : lens.positions.filter(each => each > shown[0] - around && each < shown[1] + around);
    return columns.flatMap(position =>
      this._rows.flatMap((layer, y) => {
        const cell = lens.at(layer, position);
        const [best] = cell?.candidates ?? [];
        const value = colorValue(lens, lens.rowAt(layer, position), color);
        if (!best || value === null || !Number.isFinite(value)) {
          return [];
        }
        const { text, pixels: taken } = fittedToken(best.text, pixels - 6);
        const back = scale.colorAt(scale.entry(value) / 255);
        return [{ x: position, y, text, color: contrastColor(back), room: taken + 4 }];
      })
    );
  }

  /** Where the final token leads, as far as that is about to be seen: from its first layer up to the deepest one, of those that are drawn. */
  private _outline({ layer, position }: ILead, { shown }: ITokenWindow): Row[] {
    const around = shown[1] - shown[0];
    const rows = this._rows.flatMap((each, row) => (layer !== null && each >= layer ? [row] : []));
    const last = rows.at(-1);
    return last === undefined || position < shown[0] - around || position > shown[1] + around
      ? []
      : [{ x: position - 0.46, x2: position + 0.46, y: -0.46, y2: last + 0.46 }];
  }

  private _cellWords(cell: ILensCell): string {
    const [best] = cell.candidates;
    const final = this.finalOf(cell);
    const words = best
      ? `${tokenWords(best.text)} ${formatNumber(best.probability, 3)}`
      : this._t('no candidates');
    return final === null
      ? words
      : this._t('%1; in the end %2, rank %3', words, final, formatInteger(cell.rank));
  }

  private _position(position: number): string {
    return positionName(position, this._wish?.texts ?? new Map<number, string>(), this._t);
  }

  private _wish: ILensWish | null = null;
  /** Layers from top to bottom. */
  private _rows: readonly number[] = [];
  private readonly _pictures = new Pictures();
}

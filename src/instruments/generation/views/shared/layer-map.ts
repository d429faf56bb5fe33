import { formatInteger, Pictures, type ColorScale, type IPlace, type IRecipe } from '../../../../charts';
import type { IContent, IMark, IMoved } from '../../../../views/shared/content';
import { layerName } from '../../../../views/shared/layers';
import type { IPictured } from '../../../../views/shared/view-model';
import { rowPlaces } from '../../../../views/shared/row-places';
import { around, moveAmongCells, axisParams, colorStrip } from '../../../../views/shared/scale';
import type { ITip } from '../../../../views/shared/table';
import { tokenLabels, tokenTicks, type ITokenWindow, type TokenTexts } from './token-axis';
import type { Translate } from '../../../../views/shared/translate';

export interface ILayerCell {
  readonly layer: number;
  readonly position: number;
}

export interface ILayerMapRequest {
  readonly layers: readonly number[];
  /** Ascending. */
  readonly positions: readonly number[];
  readonly axis: ITokenWindow;
  /** Tokens under the axis. */
  readonly texts: TokenTexts;
  /** Pixels of a layer. */
  readonly pixels: number;
  /** What colours a cell; null where there is nothing. */
  readonly valueOf: (layer: number, position: number) => number | null;
  readonly scaleOf: (values: Float64Array) => ColorScale;
  readonly xTitle: string;
  readonly legendTitle: string;
  /** What is drawn upon the cells. */
  readonly marks: (scale: ColorScale) => IRecipe['datasets'];
}

/** A picture of layer × position of a text, the deepest layer on top, with its pointer and keys. */
export abstract class LayerMap implements IPictured {
  constructor(protected readonly t: Translate) {}

  at: ILayerCell | null = null;

  /** Column at which that begins; of those beyond the last the last one. */
  protected readonly firstColumn: number = 0;

  abstract tipOf(mark: IMark): ITip | null;

  /** Name a position, and say what a cell of it holds. */
  protected abstract words(place: ILayerCell): { readonly where: string; readonly value: string };

  /** Layers from top to bottom. */
  protected rows: readonly number[] = [];

  protected take(request: ILayerMapRequest): Pick<IContent, 'extent' | 'recipe'> {
    const { axis } = request;
    this._request = request;
    this.rows = [...request.layers].reverse();
    const y = [-0.5, this.rows.length - 0.5] as const;
    const [rows, columns] = [this.rows.length, axis.x[1] - axis.x[0]];
    const values = new Float64Array(rows * columns).fill(NaN);
    const missing = new Uint8Array(rows * columns).fill(1);
    this.rows.forEach((layer, row) => {
      for (const position of request.positions) {
        const column = position - (axis.x[0] + 0.5);
        const value = column < 0 ? null : request.valueOf(layer, position);
        if (value !== null) {
          values[row * columns + column] = value;
          missing[row * columns + column] = 0;
        }
      }
    });
    const scale = request.scaleOf(values);
    const unfinished = values.some((value, at) => !Number.isFinite(value) && missing[at] === 0);
    const strip = colorStrip(scale, unfinished, this.t);
    const { height, labelled } = rowPlaces(rows, { each: request.pixels, least: 170, most: 640 });
    const picture = this._pictures.draw(0, { rows, columns, values, missing }, scale);
    return {
      recipe: {
        template: 'token-map',
        texts: {
          xTitle: request.xTitle,
          yTitle: this.t('layer'),
          ...tokenTicks('cell_width'),
          legendTitle: request.legendTitle
        },
        params: {
          ...axisParams(axis.shown, y),
          rowAt: labelled,
          rowText: labelled.map(row => formatInteger(this.rows[row] ?? NaN)),
          labels: tokenLabels(request.texts, axis),
          ...strip.params
        },
        datasets: {
          pictures: [{ ...picture, x: axis.x[0], x2: axis.x[1], y: y[0], y2: y[1] }],
          ...request.marks(scale),
          legend: strip.rows
        },
        painted: this._pictures.painted,
        height
      },
      extent: { x: axis.x, y }
    };
  }

  probe({ x, y }: IPlace): IMark | null {
    const [layer, position] = [this.rows[Math.round(y)], Math.round(x)];
    if (layer === undefined || !this._positions.includes(position)) {
      return null;
    }
    // The keys go on from where the pointer is.
    this.at = { layer, position };
    return this.markOf(this.at);
  }

  move(key: string): IMoved | null {
    const { at, rows, _positions: positions } = this;
    const before = at && { column: positions.indexOf(at.position), row: rows.indexOf(at.layer) };
    const size = { columns: positions.length, rows: rows.length };
    const cell = moveAmongCells(key, before, size, this.firstColumn);
    const [layer, position] = [rows[cell?.row ?? -1], positions[cell?.column ?? -1]];
    if (layer === undefined || position === undefined) {
      return null;
    }
    this.at = { layer, position };
    const mark = this.markOf(this.at);
    const { where, value } = this.words(this.at);
    const sentence = this.t('%1, %2: %3', layerName(layer, this.t), where, value);
    return key === 'copy' ? { said: sentence, mark, copy: value } : { said: sentence, mark };
  }

  /** The cell of a layer and position. */
  markOf({ position, layer }: ILayerCell): IMark {
    return { facet: null, x: around(position), y: around(this.rows.indexOf(layer)) };
  }

  /** A whole row; null where the layer is not drawn. */
  rowOf(layer: number): IMark | null {
    const [row, x] = [this.rows.indexOf(layer), this._request?.axis.x];
    return row < 0 || !x ? null : { facet: null, x, y: around(row) };
  }

  /** Layer and position of a mark. */
  placeOf({ x, y }: IMark): { readonly layer: number | null; readonly position: number | null } {
    const position = (x[0] + x[1]) / 2;
    return {
      layer: (y && this.rows[Math.round((y[0] + y[1]) / 2)]) ?? null,
      position: this._positions.includes(position) ? position : null
    };
  }

  private get _positions(): readonly number[] {
    return this._request?.positions ?? [];
  }

  private _request: ILayerMapRequest | null = null;
  private readonly _pictures = new Pictures();
}

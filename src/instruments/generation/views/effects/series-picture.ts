import { picked } from '../../../../aggregate';
import { COLORS, type IRecipe, type Row } from '../../../../charts';
import type { IContent, IMark, IMoved } from '../../../../views/shared/content';
import { lineColors } from '../../../../views/kits/lines/legend';
import { mapColumns, type ILine } from '../../../../views/kits/lines/line';
import { lineRecipe, type ILinesRequest } from '../../../../views/kits/lines/line-recipe';
import { CellPicture, type ICellWords } from '../../../../views/kits/matrix/matrix-picture';
import { extentOf, hold, type IGridCell, moveOf, padded, scaleOf } from '../../../../views/shared/scale';
import type { ITip } from '../../../../views/shared/table';

/** Most bars, and points of a line, that are shown at once. */
const MOST_POINTS = 1200;

/** A range about one of the lines: of each of its points the least and the greatest value. */
export interface IRange {
  readonly low: Float64Array;
  readonly high: Float64Array;
}

/** Lines over places of a text or of a sweep, or one of them as bars. */
export interface ISeriesRequest {
  readonly lines: readonly ILine[];
  /** Of each line; absent where there are none. */
  readonly ranges?: readonly IRange[];
  /** The first line as bars, each of the kind at its index, and the names of the kinds. */
  readonly bars?: { readonly kinds: readonly number[]; readonly names: readonly string[] };
  readonly transform: 'linear' | 'log';
  readonly texts: Omit<ILinesRequest['texts'], 'yScale'>;
  /** Labels of the x axis, as its expressions read them. */
  readonly params: Readonly<Record<string, unknown>>;
  readonly rules: readonly Row[];
  readonly x: readonly [number, number];
  /** What is shown of it. */
  readonly shown: readonly [number, number];
  /** Half the width of a place; 0 is a point. */
  readonly half: number;
  readonly nameOf: (x: number) => string;
  readonly tipOf: (x: number, color: (line: ILine) => string) => ITip['lines'];
  /** What a line says at a place, for a screen reader. */
  readonly valueOf: (line: ILine, x: number) => string;
}

/** A chart over places, at which all lines are pointed at. */
export class SeriesPicture extends CellPicture {
  protected override firstColumn = Infinity;
  protected override readonly snaps = true;

  take(request: ISeriesRequest, isDark: boolean): Pick<IContent, 'extent' | 'printed' | 'recipe'> {
    const { half, lines, x } = request;
    this._request = request;
    this._line = hold(this._line, lines.length);
    const xs = [...new Set(lines.flatMap(line => [...line.x]))].sort((a, b) => a - b);
    this.plots = [{ x, xs, half, ys: null, axis: null }];
    this._colors = lineColors(request.lines, isDark);
    const range = rangeOf(request);
    const isLog = request.transform === 'log' && range !== null;
    // Nothing here is below 0, and 0 is no change.
    const y = padded(range && !isLog ? [Math.min(0, range[0]), range[1]] : range, isLog);
    return {
      recipe: this._recipe(request, isDark, y, isLog),
      printed: (dark = false) => this._recipe(request, dark, y, isLog),
      extent: { x: request.x, y }
    };
  }

  override move(key: string): IMoved | null {
    const [, down = 0] = (this.at && moveOf(key)) ?? [];
    this._line = hold(this._line + down, this._request?.lines.length ?? 0);
    return super.move(key);
  }

  protected words({ column }: IGridCell): ICellWords {
    const [request, x] = [this._request, this.plots[0]?.xs[column]];
    const line = request?.lines[this._line];
    if (!request || !line || x === undefined) {
      return { tip: null, said: '', value: '' };
    }
    const color = (each: ILine): string => this._colors[request.lines.indexOf(each)] ?? '#000';
    const [heading, value] = [request.nameOf(x), request.valueOf(line, x)];
    const name = request.lines.length > 1 ? `, ${line.name}` : '';
    return {
      tip: { heading, lines: request.tipOf(x, color) },
      said: `${heading}${name}: ${value}`,
      value
    };
  }

  private _recipe(
    request: ISeriesRequest,
    dark: boolean,
    y: readonly [number, number],
    isLog: boolean
  ): IRecipe {
    const colors = lineColors(request.lines, dark);
    const texts = { ...request.texts, yScale: scaleOf(isLog ? 'log' : 'linear', y[0]) };
    const { bars, ranges = [] } = request;
    const lines = request.lines.map(line =>
      fewPoints(isLog ? { ...line, value: aboveZero(line.value) } : line, request.shown)
    );
    const recipe = lineRecipe({ lines, colors, bad: [], x: request.x, ys: [y], texts }, null);
    const { rows = [] } = recipe.datasets;
    const kinds = COLORS.categorical[dark ? 'dark' : 'light'];
    return {
      ...recipe,
      params: { ...recipe.params, ...request.params, ...(bars ? { keyText: bars.names } : {}) },
      datasets: {
        ...recipe.datasets,
        ...(bars
          ? {
              rows: [],
              bars: barRows(request, kinds, isLog ? y[0] : 0),
              key: bars.names.map((_, index) => ({ place: index, color: kinds[index] }))
            }
          : // Few places: each is seen.
            { rows: rows.map(row => ({ ...row, alone: row['value'] !== null && request.half === 0 })) }),
        band: ranges.flatMap((range, at) => bandRows(lines[at], range, at, colors[at] ?? '#000', y[0])),
        rules: request.rules
      }
    };
  }

  private _request: ISeriesRequest | null = null;
  private _colors: readonly string[] = [];
  /** Number of the line that keys say. */
  private _line = 0;
}

export const middleOf = ({ x }: IMark): number => (x[0] + x[1]) / 2;

/** Least and greatest value that is drawn; on a logarithmic axis of those above 0. */
function rangeOf({ lines, ranges = [], transform }: ISeriesRequest): readonly [number, number] | null {
  const values = [...lines.map(({ value }) => value), ...ranges.flatMap(({ low, high }) => [low, high])];
  return extentOf(transform === 'log' ? values.map(aboveZero) : values);
}

/** What a logarithmic axis has a place for. */
const aboveZero = (values: Float64Array): Float64Array => values.map(each => (each > 0 ? each : NaN));

/** Positions that share a bar or a point, where there are more than can be told apart. */
export const sharing = ([from, to]: readonly [number, number]): number =>
  Math.max(1, Math.ceil((to - from) / MOST_POINTS));

/** Of the points that are shown, and of as many on either side, the largest of all that share a place. */
function fewPoints(line: ILine, shown: readonly [number, number]): ILine {
  const every = sharing(shown);
  const retained = indicesOf(line, shown);
  return every === 1 ? line : mapColumns(line, column => picked(column, retained));
}

function indicesOf({ x, value }: ILine, [from, to]: readonly [number, number]): number[] {
  const [every, around] = [sharing([from, to]), to - from];
  const best = new Map<number, number>();
  x.forEach((index, at) => {
    const bucket = Math.floor(index / every);
    const before = best.get(bucket);
    if (
      index >= from - around &&
      index <= to + around &&
      !((value[at] ?? NaN) <= (value[before ?? -1] ?? NaN))
    ) {
      best.set(bucket, at);
    }
  });
  return [...best.values()];
}

function barRows(
  { lines: [line], bars, shown }: ISeriesRequest,
  kinds: readonly string[],
  base: number
): Row[] {
  const every = sharing(shown);
  return (line ? indicesOf(line, shown) : []).flatMap(at => {
    const [x, value] = [line?.x[at] ?? NaN, line?.value[at] ?? NaN];
    const left = Math.floor(x / every) * every;
    return value > base
      ? [{ x: left - 0.4, x2: left + every - 0.6, value, base, color: kinds[bars?.kinds[at] ?? 0] }]
      : [];
  });
}

function bandRows(
  line: ILine | undefined,
  { low, high }: IRange,
  number: number,
  color: string,
  least: number
): Row[] {
  return Array.from(line?.x ?? []).map((x, at) => {
    const [bottom, top] = [low[at] ?? NaN, high[at] ?? NaN];
    const isKnown = Number.isFinite(bottom) && Number.isFinite(top);
    return {
      x,
      line: number,
      low: isKnown ? Math.max(bottom, least) : null,
      high: isKnown ? top : null,
      color
    };
  });
}

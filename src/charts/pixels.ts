import { type ColorScale, channels } from './color-scale';
import COLORS from '#protocol/charts/colors.json';
import { fromVega } from './recipe';

/** One plotted rectangle of a chart in pixels from the chart's upper left corner. */
export interface IPlotFrame {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
  /** The facet's fields, such as `layer` or `panel`; empty where the chart has one rectangle only. */
  readonly facet: Readonly<Record<string, unknown>>;
}

/** What frames need of a Vega view. */
export interface ISceneView {
  origin(): number[];
  padding(): unknown;
  scenegraph(): unknown;
  signal(name: string): unknown;
}

export interface ISceneItem {
  x?: number;
  y?: number;
  width?: number;
  height?: number;
  datum?: Record<string, unknown>;
  items?: ISceneMark[];
  image?: unknown;
}

interface ISceneMark {
  name?: string;
  marktype?: string;
  items?: ISceneItem[];
}

/**
 * Names that Vega-Lite gives the groups of a unit called `cell`: alone, in a facet and in a concatenation.
 */
const CELLS = /(^|_)cell(_group)?$/;

function collect(mark: ISceneMark, left: number, top: number, into: IPlotFrame[]): void {
  for (const item of mark.items ?? []) {
    const [x, y] = [left + (item.x ?? 0), top + (item.y ?? 0)];
    if (mark.name !== undefined && CELLS.test(mark.name)) {
      into.push({
        left: x,
        top: y,
        width: item.width ?? 0,
        height: item.height ?? 0,
        facet: fromVega(item.datum ?? {})
      });
      continue;
    }
    for (const child of item.items ?? []) {
      if (child.marktype === 'group') {
        collect(child, x, y, into);
      }
    }
  }
}

export function frames(view: ISceneView): IPlotFrame[] {
  const root = (view.scenegraph() as { root: ISceneMark }).root;
  const [x = 0, y = 0] = view.origin();
  // The origin lies inside the padding, which a spec may give as one number.
  const padding = view.padding() as number | { left?: number; top?: number };
  const [left, top] =
    typeof padding === 'number'
      ? [x + padding, y + padding]
      : [x + (padding.left ?? 0), y + (padding.top ?? 0)];
  const found: IPlotFrame[] = [];
  collect(root, left, top, found);
  if (found.length > 0) {
    return found;
  }
  const item = root.items?.[0];
  return [{ left, top, width: item?.width ?? 0, height: item?.height ?? 0, facet: {} }];
}

export function images(view: Pick<ISceneView, 'scenegraph'>): ISceneItem[] {
  const within = (mark: ISceneMark): ISceneItem[] =>
    mark.marktype === 'image'
      ? (mark.items ?? [])
      : (mark.items ?? []).flatMap(item => (item.items ?? []).flatMap(within));
  return within((view.scenegraph() as { root: ISceneMark }).root);
}

/** A point of a plot in the units of its axes. */
export interface IPlace {
  readonly frame: IPlotFrame;
  readonly x: number;
  /** NaN for charts whose y domain is not one of the params. */
  readonly y: number;
  /** Part of the plot's height from its top. */
  readonly down: number;
}

/** Domain of a chart, read from its params. y grows downwards where the template reverses it. */
export function domains(view: ISceneView): { x: [number, number]; y: [number, number] } {
  const read = (name: string): number => {
    try {
      return Number(view.signal(name));
    } catch {
      return NaN; // The template has no such param.
    }
  };
  return { x: [read('x0'), read('x1')], y: [read('y0'), read('y1')] };
}

/** What lies under a pixel of the chart, or null outside every plot. */
export function locate(view: ISceneView, left: number, top: number): IPlace | null {
  const { x, y } = domains(view);
  for (const frame of frames(view)) {
    const [across, down] = [(left - frame.left) / frame.width, (top - frame.top) / frame.height];
    if (across >= 0 && across <= 1 && down >= 0 && down <= 1) {
      return { frame, x: x[0] + across * (x[1] - x[0]), y: y[0] + down * (y[1] - y[0]), down };
    }
  }
  return null;
}

/** A matrix to draw, row-major, row 0 at the top. */
export interface IMatrix {
  readonly rows: number;
  readonly columns: number;
  /** `rows × columns` values. */
  readonly values: ArrayLike<number>;
  /** 1 where there is no value at all: drawn as nothing. Absent: every cell is there. */
  readonly missing?: Uint8Array;
}

export interface IPixels {
  readonly width: number;
  readonly height: number;
  readonly data: Uint8ClampedArray<ArrayBuffer>;
}

const BUDGET = 2_000_000;
const MOST_PER_CELL = 6;
const OPAQUE = 0xff000000;

const packed = (color: string): number => {
  const [red, green, blue] = channels(color);
  return (OPAQUE | (blue << 16) | (green << 8) | red) >>> 0;
};
const [PLAIN, STRIPE] = [packed(COLORS.nonfinite[0]), packed(COLORS.nonfinite[1])];

/** Whether something that is there is not finite. */
export function hasUnfinished({ rows, columns, values, missing }: IMatrix): boolean {
  for (let cell = 0; cell < rows * columns; cell++) {
    const value = values[cell] ?? NaN;
    // Only finite numbers leave nothing of themselves.
    if (value - value !== 0 && missing?.[cell] !== 1) {
      return true;
    }
  }
  return false;
}

/** Return how many pixels wide a cell must be for its pattern to show: 1 unless a cell is non-finite. */
const cellSize = (matrix: IMatrix): number =>
  hasUnfinished(matrix)
    ? Math.max(1, Math.min(MOST_PER_CELL, Math.floor(Math.sqrt(BUDGET / (matrix.rows * matrix.columns)))))
    : 1;

/** Return the packed colours of a scale in the byte order of a canvas. */
function packedTable(scale: ColorScale): Uint32Array {
  const table = new Uint32Array(256);
  for (let entry = 0; entry < 256; entry++) {
    const [red = 0, green = 0, blue = 0] = scale.table.subarray(entry * 3, entry * 3 + 3);
    table[entry] = (OPAQUE | (blue << 16) | (green << 8) | red) >>> 0;
  }
  return table;
}

/**
 * Paint one pixel for each cell: the path of large and of all-finite pictures, without a call per cell on a
 * linear scale.
 */
function paintPlain(
  values: ArrayLike<number>,
  scale: ColorScale,
  table: Uint32Array,
  width: number,
  pixels: Uint32Array
): void {
  const [lo, hi] = scale.domain;
  const linear = scale.transform === 'linear' && !scale.stepped && hi > lo;
  const span = hi - lo;
  for (let cell = 0; cell < pixels.length; cell++) {
    const value = values[cell] ?? NaN;
    if (value - value !== 0) {
      const odd = (Math.floor(cell / width) + (cell % width)) % 2 !== 0;
      pixels[cell] = odd ? PLAIN : STRIPE;
    } else {
      // Values outside of locked colours have those of the nearer end; truncation is floor from 0 on.
      const part = value < lo ? 0 : value > hi ? 1 : (value - lo) / span;
      pixels[cell] = table[linear ? (part * 255 + 0.5) | 0 : scale.entry(value)] ?? 0;
    }
  }
}

/**
 * Paint a matrix: a finite cell in its colour, a non-finite one in its own colour with diagonals, a missing
 * one not at all.
 *
 * @param before - A picture that is not needed any more: its memory is taken where the size is the same.
 * @returns One pixel per cell, or a block of equal size for each when some cell is non-finite.
 */
export function paint(matrix: IMatrix, scale: ColorScale, before?: IPixels): IPixels {
  const { rows, columns, values, missing } = matrix;
  const size = cellSize(matrix);
  const [width, height] = [columns * size, rows * size];
  const fits = before?.width === width && before.height === height;
  const pixels = fits ? new Uint32Array(before.data.buffer).fill(0) : new Uint32Array(width * height);
  const table = packedTable(scale);
  if (size === 1 && missing === undefined && !scale.empty) {
    paintPlain(values, scale, table, width, pixels);
    return { width, height, data: new Uint8ClampedArray(pixels.buffer) };
  }
  const period = size === 1 ? 2 : 4;
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const cell = row * columns + column;
      if (missing?.[cell] === 1) {
        continue;
      }
      const value = values[cell] ?? NaN;
      const finite = Number.isFinite(value);
      const color = finite ? (table[scale.entry(value)] ?? 0) : PLAIN;
      for (let y = row * size; y < (row + 1) * size; y++) {
        for (let x = column * size; x < (column + 1) * size; x++) {
          pixels[y * width + x] = finite || (x + y) % period !== 0 ? color : STRIPE;
        }
      }
    }
  }
  return { width, height, data: new Uint8ClampedArray(pixels.buffer) };
}

/** How many values of a row say where its middle is. */
const SAMPLES = 64;

/** The median of finite values, of about `samples` of them where there are more; 0 where there is none. */
export function middleOf(values: ArrayLike<number>, samples = SAMPLES, from = 0, to = values.length): number {
  const every = Math.max(1, Math.ceil((to - from) / samples));
  const finite: number[] = [];
  for (let at = from; at < to; at += every) {
    const value = values[at] ?? NaN;
    if (value - value === 0) {
      finite.push(value);
    }
  }
  return finite.sort((a, b) => a - b)[finite.length >> 1] ?? 0;
}

/** The magnitude of the finite value that is farthest from 0; NaN where none is finite. */
export function greatestOf(values: ArrayLike<number>): number {
  let greatest = NaN;
  for (let at = 0; at < values.length; at++) {
    const size = Math.abs(values[at] ?? NaN);
    greatest = size < Infinity && !(size <= greatest) ? size : greatest;
  }
  return greatest;
}

/**
 * How much a value says among those that share its place: the one that says most is drawn. What is not finite
 * says more than any number, the value of greatest magnitude, which sentences name, more than any other
 * number, and of the rest that one which is farthest from the middle of its row.
 */
export function telling(value: number, middle: number, greatest: number): number {
  return value - value !== 0
    ? Infinity
    : Math.abs(value) === greatest
      ? Number.MAX_VALUE
      : Math.abs(value - middle);
}

/**
 * Bring a matrix to at most so many rows and columns, as there are pixels for it. Each cell shows that one of
 * the cells it stands for which says most, so that no picture loses a spike by its size.
 */
export function aggregated(matrix: IMatrix, mostColumns: number, mostRows: number): IMatrix {
  const columns = Math.min(matrix.columns, Math.max(1, Math.floor(mostColumns)));
  const rows = Math.min(matrix.rows, Math.max(1, Math.floor(mostRows)));
  if (columns === matrix.columns && rows === matrix.rows) {
    return matrix;
  }
  const { values: all, missing: absent } = matrix;
  const values = new Float64Array(rows * columns).fill(NaN);
  const missing = new Uint8Array(rows * columns).fill(1);
  const said = new Float64Array(rows * columns);
  const greatest = greatestOf(all);
  const columnOf = Uint32Array.from({ length: matrix.columns }, (_, at) =>
    Math.floor((at * columns) / matrix.columns)
  );
  for (let row = 0; row < matrix.rows; row++) {
    const from = row * matrix.columns;
    const start = Math.floor((row * rows) / matrix.rows) * columns;
    const middle = middleOf(all, SAMPLES, from, from + matrix.columns);
    for (let column = 0; column < matrix.columns; column++) {
      if (absent?.[from + column] === 1) {
        continue;
      }
      const value = all[from + column] ?? NaN;
      const cell = start + (columnOf[column] ?? 0);
      const says = telling(value, middle, greatest);
      if (missing[cell] === 1 || says > (said[cell] ?? 0)) {
        values[cell] = value;
        said[cell] = says;
        missing[cell] = 0;
      }
    }
  }
  return absent || missing.includes(1) ? { rows, columns, values, missing } : { rows, columns, values };
}

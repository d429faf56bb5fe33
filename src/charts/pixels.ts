import type { ColorScale } from './color-scale';
import { channels } from './color-scale';
import { COLORS } from './colors.generated';

/** A matrix to draw, row-major, row 0 at the top. */
export interface IMatrix {
  readonly rows: number;
  readonly columns: number;
  /** `rows × columns` values. */
  readonly values: ArrayLike<number>;
  /** 1 where there is no value at all: drawn as nothing. Absent: every cell is there. */
  readonly missing?: Uint8Array;
}

/** Pixels as a canvas takes them: RGBA, 8 bits each. */
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

/** Return how many pixels wide a cell must be for its pattern to show: 1 unless a cell is non-finite. */
function cellSize(matrix: IMatrix): number {
  const cells = matrix.rows * matrix.columns;
  const { values, missing } = matrix;
  for (let cell = 0; cell < cells; cell++) {
    const value = values[cell] ?? NaN;
    if (value - value !== 0 && missing?.[cell] !== 1) {
      return Math.max(1, Math.min(MOST_PER_CELL, Math.floor(Math.sqrt(BUDGET / cells))));
    }
  }
  return 1;
}

/** Return the packed colours of a scale in the byte order of a canvas. */
function packedTable(scale: ColorScale): Uint32Array {
  const table = new Uint32Array(256);
  for (let entry = 0; entry < 256; entry++) {
    const [red = 0, green = 0, blue = 0] = scale.table.subarray(entry * 3, entry * 3 + 3);
    table[entry] = (OPAQUE | (blue << 16) | (green << 8) | red) >>> 0;
  }
  return table;
}

/** Paint one pixel for each cell: the path of large and of all-finite pictures, without a call per cell on a linear scale. */
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
      // Values outside of locked colours have those of the nearer end; truncation is floor for what is not negative.
      const part = value < lo ? 0 : value > hi ? 1 : (value - lo) / span;
      pixels[cell] = table[linear ? (part * 255 + 0.5) | 0 : scale.entry(value)] ?? 0;
    }
  }
}

/**
 * Paint a matrix: a finite cell in its colour, a non-finite one in its own colour with diagonals, a missing one not at all.
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

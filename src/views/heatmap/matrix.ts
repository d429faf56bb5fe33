import type { IMatrix } from '../../charts';
import type { ITensorRow } from '../../store/tensor-data';

/** One sample (and head) of a traced tensor as a picture sees it. */
export interface ISlice extends IMatrix {
  readonly values: Float32Array;
  /** Least and greatest finite value, or null when there is none. */
  readonly extent: readonly [number, number] | null;
  readonly nonFinite: number;
}

/** How the axes of a row lie in the picture. */
export interface IAxes {
  /** Names of the horizontal and the vertical axis. */
  readonly x: string;
  readonly y: string;
  readonly heads: number;
  readonly samples: number;
  /** Whether the tensor's last axis runs down the picture instead of across. */
  readonly transposed: boolean;
}

/**
 * Say how a row is laid out: positions run to the right; attention has queries downwards and keys to the right.
 *
 * @param axes Axis names of one sample from hello, such as ['position', 'feature'].
 * @param last Name of the last axis after compression.
 */
export function axesOf(row: ITensorRow, axes: readonly string[], last: string): IAxes {
  const dimensions = row.shape.slice(1);
  const names = [...axes.slice(0, -1), last].slice(-Math.max(1, dimensions.length));
  const heads = dimensions.slice(0, -2).reduce((product, size) => product * size, 1);
  const first = names.length > 1 ? (names[names.length - 2] ?? '') : '';
  const samples = row.shape[0] ?? 1;
  if (dimensions.length < 2) {
    return { x: axes[0] ?? last, y: '', heads, samples, transposed: false };
  }
  return first === 'query'
    ? { x: last, y: first, heads, samples, transposed: false }
    : { x: first, y: last, heads, samples, transposed: true };
}

/** A slice of which some cells are not there: they are drawn as nothing, and are not among those that are not finite. */
export function maskedSlice(slice: ISlice, missing: Uint8Array | undefined): ISlice {
  if (missing === undefined) {
    return slice;
  }
  const nonFinite = slice.values.reduce(
    (sum, value, cell) => sum + (missing[cell] === 1 || Number.isFinite(value) ? 0 : 1),
    0
  );
  return { ...slice, missing, nonFinite };
}

/** The value of a cell; null where there is none. */
export function valueIn({ values, missing }: ISlice, cell: number): number | null {
  return missing?.[cell] === 1 ? null : (values[cell] ?? NaN);
}

/** Cut one sample and head out of a row. Values are copied only where the axes must be swapped. */
export function sliceOf(row: ITensorRow, axes: IAxes, sample: number, head: number): ISlice {
  const dimensions = row.shape.slice(1);
  const [down = 1, across = 1] = dimensions.length < 2 ? [1, dimensions[0] ?? 1] : dimensions.slice(-2);
  const start = (sample * axes.heads + head) * down * across;
  const cut = row.values.subarray(start, start + down * across);
  const values = axes.transposed ? transpose(cut, down, across) : cut;
  let lo = Infinity;
  let hi = -Infinity;
  let nonFinite = 0;
  for (let cell = 0; cell < values.length; cell++) {
    const value = values[cell] ?? NaN;
    // Only finite numbers leave nothing of themselves.
    if (value - value === 0) {
      lo = value < lo ? value : lo;
      hi = value > hi ? value : hi;
    } else {
      nonFinite += 1;
    }
  }
  return {
    rows: axes.transposed ? across : down,
    columns: axes.transposed ? down : across,
    values,
    extent: lo <= hi ? [lo, hi] : null,
    nonFinite
  };
}

/** Cells of a block that is turned at a time: small enough that both sides of it stay in the cache. */
const BLOCK = 32;

function transpose(values: Float32Array, down: number, across: number): Float32Array {
  const out = new Float32Array(values.length);
  for (let top = 0; top < down; top += BLOCK) {
    const bottom = Math.min(top + BLOCK, down);
    for (let left = 0; left < across; left += BLOCK) {
      const right = Math.min(left + BLOCK, across);
      for (let column = left; column < right; column++) {
        for (let row = top; row < bottom; row++) {
          out[column * down + row] = values[row * across + column] ?? NaN;
        }
      }
    }
  }
  return out;
}

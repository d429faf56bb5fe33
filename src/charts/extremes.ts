import type { IMatrix } from './pixels';

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

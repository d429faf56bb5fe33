import { inRanges } from '../protocol/ranges';
import type { ITensorRow } from '../store/tensor-data';
import { AggregateError, momentsOf, type IMoments } from './moment-merge';
import type { TensorSelection } from '../protocol/requests.generated';

export interface IGroups {
  readonly group: Uint32Array;
  /** First key of each group. Groups are ordered by the first key, then the second. */
  readonly first: Float64Array;
  readonly second: Float64Array;
}

interface ICodes {
  readonly code: Uint32Array;
  /** The distinct values, ascending; a code is an index into them. */
  readonly keys: Float64Array;
}

export type Integers = Float64Array | Int32Array | Uint32Array;

// A table of this many entries costs less than hashing, whatever the number of rows.
const SMALL_TABLE = 1 << 16;

/**
 * Group rows by two columns of whole numbers, such as step and layer.
 *
 * Typed arrays instead of arquero's groupby: that builds a key text for each row, which for a million rows
 * takes ten times as long. Where the two ranges span a grid that is not much larger than the rows are many,
 * as steps and layers do, a row's place in the grid is its group. Otherwise each column is coded by its
 * distinct values first, and the grid is that of the codes.
 */
export function groupBy(first: Integers, second: Integers): IGroups {
  const [low, high] = rangeOf(first);
  const [left, right] = rangeOf(second);
  const across = right - left + 1;
  const cells = (high - low + 1) * across;
  if (first.length > 0 && cells <= Math.max(SMALL_TABLE, first.length * 4)) {
    return onGrid(first, second, low, left, across, cells);
  }
  const a = encode(first);
  const b = encode(second);
  const width = b.keys.length;
  if (a.keys.length * width > 0xffffffff) {
    throw new AggregateError(
      `${a.keys.length} × ${width} groups are more than can be numbered. Choose fewer steps.`
    );
  }
  const pairs = a.code;
  for (let row = 0; row < pairs.length; row += 1) {
    pairs[row] = (pairs[row] ?? 0) * width + (b.code[row] ?? 0);
  }
  const { code, keys } = encode(pairs);
  return {
    group: code,
    first: keys.map(pair => a.keys[Math.floor(pair / width)] ?? 0),
    second: keys.map(pair => b.keys[pair % width] ?? 0)
  };
}

function onGrid(
  first: Integers,
  second: Integers,
  low: number,
  left: number,
  across: number,
  cells: number
): IGroups {
  const group = new Uint32Array(first.length);
  const taken = new Uint8Array(cells);
  for (let row = 0; row < group.length; row += 1) {
    const cell = ((first[row] as number) - low) * across + (second[row] as number) - left;
    group[row] = cell;
    taken[cell] = 1;
  }
  const numbers = new Uint32Array(cells);
  const there: number[] = [];
  for (let cell = 0; cell < cells; cell += 1) {
    numbers[cell] = there.length;
    if (taken[cell] === 1) {
      there.push(cell);
    }
  }
  if (there.length < cells) {
    for (let row = 0; row < group.length; row += 1) {
      group[row] = numbers[group[row] as number] as number;
    }
  }
  return {
    group,
    first: Float64Array.from(there, cell => low + Math.floor(cell / across)),
    second: Float64Array.from(there, cell => left + (cell % across))
  };
}

function rangeOf(column: Integers): [number, number] {
  let low = Infinity;
  let high = -Infinity;
  for (let row = 0; row < column.length; row += 1) {
    const value = column[row] as number;
    if (value < low) {
      low = value;
    }
    if (value > high) {
      high = value;
    }
  }
  return [low, high];
}

function encode(column: Integers): ICodes {
  const [low, high] = rangeOf(column);
  const range = high - low + 1;
  return range <= Math.max(SMALL_TABLE, column.length * 4) ? byTable(column, low, range) : byMap(column);
}

function byTable(column: Integers, low: number, range: number): ICodes {
  const code = new Uint32Array(column.length);
  if (column.length === 0) {
    return { code, keys: new Float64Array(0) };
  }
  const codes = new Uint32Array(range);
  for (let row = 0; row < column.length; row += 1) {
    codes[(column[row] ?? 0) - low] = 1;
  }
  let distinct = 0;
  const keys = new Float64Array(Math.min(range, column.length));
  for (let offset = 0; offset < range; offset += 1) {
    if (codes[offset] === 1) {
      keys[distinct] = low + offset;
      codes[offset] = distinct;
      distinct += 1;
    }
  }
  for (let row = 0; row < column.length; row += 1) {
    code[row] = codes[(column[row] ?? 0) - low] ?? 0;
  }
  return { code, keys: keys.slice(0, distinct) };
}

function byMap(column: Integers): ICodes {
  const indices = new Map<number, number>();
  const found = new Uint32Array(column.length);
  for (let row = 0; row < column.length; row += 1) {
    const value = column[row] ?? 0;
    let index = indices.get(value);
    if (index === undefined) {
      index = indices.size;
      indices.set(value, index);
    }
    found[row] = index;
  }
  const values = Float64Array.from(indices.keys());
  const keys = values.slice().sort();
  const rank = new Map(Array.from(keys, (key, index) => [key, index]));
  const codes = Uint32Array.from(values, value => rank.get(value) ?? 0);
  return { code: found.map(index => codes[index] ?? 0), keys };
}

/**
 * Spread of the means of single positions and samples: their number, their mean, and their squared deviations
 * from it.
 */
export interface IUnits {
  readonly count: number;
  readonly mean: number;
  readonly deviation: number;
}

interface ISelected {
  readonly moments: IMoments;
  readonly units: IUnits;
}

interface ILayout {
  /** Blocks before, entries of, and values behind the position axis; one entry where there is none. */
  readonly outer: number;
  readonly length: number;
  readonly inner: number;
  readonly hasPositions: boolean;
  /** Vectors of a projection; 0 for other tensors. */
  readonly vectors: number;
}

const PROJECTED = /^Projection\b/;

const KNOWN = new WeakMap<Float32Array, { key: string; selected: ISelected }>();

/** Say how a row's values lie about the position axis. */
export function layoutOf(row: Pick<ITensorRow, 'compressor' | 'shape'>, axes: readonly string[]): ILayout {
  const at = axes.indexOf('position') + 1;
  const hasPositions = at > 0 && at < row.shape.length;
  const split = hasPositions ? at : 1;
  const product = (sizes: readonly number[]): number => sizes.reduce((all, size) => all * size, 1);
  const rest = row.shape.slice(hasPositions ? split + 1 : split);
  return {
    outer: product(row.shape.slice(0, split)),
    length: hasPositions ? (row.shape[split] ?? 1) : 1,
    inner: product(rest),
    hasPositions,
    vectors: PROJECTED.test(row.compressor) ? (row.shape[row.shape.length - 1] ?? 1) : 0
  };
}

/** Whether less than all values enter or their spread is asked for. */
export function isSelective(
  row: Pick<ITensorRow, 'compressor' | 'shape'>,
  selection: TensorSelection
): boolean {
  const [isSpread, isPart] = [selection.interval !== 'none', selection.positions.trim() !== 'all'];
  // Asked of every row of a run for every picture: the layout only where it matters.
  if (isSpread || !(isPart || PROJECTED.test(row.compressor))) {
    return isSpread;
  }
  const { vectors, hasPositions } = layoutOf(row, selection.axes);
  return vectors > 1 || (hasPositions && isPart);
}

/**
 * Sum up what is selected of a tensor. Remembered for as long as the tensor is kept, for the selection that
 * was asked for last.
 *
 * A unit is one position of one sample of one micro-batch (of a tensor without positions one sample): its
 * value is the mean of the finite values there, and of a projection the one value of the chosen vector.
 */
export function selectedOf(row: ITensorRow, selection: TensorSelection): ISelected {
  const { positions, vector, axes } = selection;
  const key = `${positions} ${vector} ${axes.join()}`;
  const known = KNOWN.get(row.values);
  if (known?.key === key) {
    return known.selected;
  }
  const { outer, length, inner, hasPositions, vectors } = layoutOf(row, axes);
  const all = Array.from({ length }, (_, at) => at);
  const wanted = hasPositions ? inRanges(positions, all) : all;
  const [start, stride] = vectors > 0 ? [Math.min(vector, vectors - 1), vectors] : [0, 1];
  const each = stride > 0 ? Math.ceil((inner - start) / stride) : 0;
  const values = new Float32Array(outer * wanted.length * Math.max(0, each));
  let [to, count, mean, deviation] = [0, 0, 0, 0];
  for (let block = 0; block < outer; block += 1) {
    for (const position of wanted) {
      const from = (block * length + position) * inner;
      let [sum, finite] = [0, 0];
      for (let at = start; at < inner; at += stride) {
        const value = row.values[from + at] ?? NaN;
        values[to++] = value;
        if (value - value === 0) {
          sum += value;
          finite += 1;
        }
      }
      if (finite > 0) {
        // Welford's: no difference of large sums.
        count += 1;
        const apart = sum / finite - mean;
        mean += apart / count;
        deviation += apart * (sum / finite - mean);
      }
    }
  }
  const selected = { moments: momentsOf(values), units: { count, mean, deviation } };
  KNOWN.set(row.values, { key, selected });
  return selected;
}

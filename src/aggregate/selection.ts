import type { ISelection } from '../store/line-data';
import type { ITensorRow } from '../store/tensor-data';
import { inRanges } from '../protocol/ranges';
import { momentsOf, type IMoments } from './moment-merge';

export type { ISelection } from '../store/line-data';

/** Spread of the means of single positions and samples: their number, their mean, and their squared deviations from it. */
export interface IUnits {
  readonly count: number;
  readonly mean: number;
  readonly deviation: number;
}

/** The sums of what was selected of one tensor. */
export interface ISelected {
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
export function isSelective(row: Pick<ITensorRow, 'compressor' | 'shape'>, selection: ISelection): boolean {
  const [isSpread, isPart] = [selection.interval !== 'none', selection.positions.trim() !== 'all'];
  // Asked of every row of a run for every picture: the layout only where it matters.
  if (isSpread || !(isPart || PROJECTED.test(row.compressor))) {
    return isSpread;
  }
  const { vectors, hasPositions } = layoutOf(row, selection.axes);
  return vectors > 1 || (hasPositions && isPart);
}

/**
 * Sum up what is selected of a tensor. Remembered for as long as the tensor is kept, for the selection that was asked for last.
 *
 * A unit is one position of one sample of one micro-batch (of a tensor without positions one sample): its value is the mean of the finite
 * values there, and of a projection the one value of the chosen vector.
 */
export function selectedOf(row: ITensorRow, selection: ISelection): ISelected {
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

import { byName } from '../protocol/records';
import { momentsOf, SUMS, type IMoments } from './moment-merge';
import type { TableAnswer, TableQuestion } from './moment-tables';

/** Many tensors in one buffer, so that they can be handed to a worker. */
interface ITensorPack {
  /** The values of all tensors, one after the other. */
  readonly values: Float32Array;
  /** Where each tensor ends in `values`. */
  readonly ends: Uint32Array;
}

export function packTensors(tensors: readonly Float32Array[]): ITensorPack {
  const ends = new Uint32Array(tensors.length);
  let length = 0;
  tensors.forEach((tensor, index) => {
    length += tensor.length;
    ends[index] = length;
  });
  const values = new Float32Array(length);
  tensors.forEach((tensor, index) => values.set(tensor, (ends[index] ?? 0) - tensor.length));
  return { values, ends };
}

export function packedMoments({ values, ends }: ITensorPack): Float64Array {
  const packed = new Float64Array(ends.length * SUMS.length);
  ends.forEach((end, index) => {
    const sums = momentsOf(values.subarray(ends[index - 1] ?? 0, end));
    SUMS.forEach((name, column) => (packed[index * SUMS.length + column] = sums[name]));
  });
  return packed;
}

export function unpackMoments(packed: Float64Array, index: number): IMoments {
  return byName(SUMS, name => packed[index * SUMS.length + SUMS.indexOf(name)] ?? Number.NaN);
}

export type WorkerQuestion =
  | { readonly kind: 'moments'; readonly pack: ITensorPack }
  | { readonly kind: 'tables'; readonly question: TableQuestion };

/** What it answers: packed sums of each tensor, or what its tables say. */
export type WorkerAnswer =
  | { readonly kind: 'moments'; readonly packed: Float64Array }
  | { readonly kind: 'tables'; readonly answer: TableAnswer };

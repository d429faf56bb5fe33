import { momentsOf, type IMoments } from './moments';

/** Numbers that one tensor's sums are packed into. */
const WIDTH = 8;

/** Many tensors in one buffer, so that they can be handed to a worker. */
export interface ITensorPack {
  /** The values of all tensors, one after the other. */
  readonly values: Float32Array;
  /** Where each tensor ends in `values`. */
  readonly ends: Uint32Array;
}

/** Copy tensors into one buffer. */
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

/** The sums of every tensor of a pack, eight numbers each. */
export function packedMoments({ values, ends }: ITensorPack): Float64Array {
  const packed = new Float64Array(ends.length * WIDTH);
  ends.forEach((end, index) => {
    const sums = momentsOf(values.subarray(ends[index - 1] ?? 0, end));
    packed.set(
      [sums.count, sums.nonFinite, sums.sum, sums.squares, sums.absolute, sums.deviation, sums.min, sums.max],
      index * WIDTH
    );
  });
  return packed;
}

/** The sums of one tensor out of `packedMoments`. */
export function unpackMoments(packed: Float64Array, index: number): IMoments {
  const at = (place: number): number => packed[index * WIDTH + place] ?? Number.NaN;
  return {
    count: at(0),
    nonFinite: at(1),
    sum: at(2),
    squares: at(3),
    absolute: at(4),
    deviation: at(5),
    min: at(6),
    max: at(7)
  };
}

import type { IGreedyRule } from '../greedy-order';
import type { IPlanShape } from '../plan-shape';

/**
 * Depth-first: of what is ready, backward passes first, and the pass that comes first where groups of P micro-batches go through all chunks of a stage, one group after the other.
 *
 * Lamy-Poirier 2022, "Breadth-First Pipeline Parallelism", section 3, calls the order of interleaved 1F1B depth-first. Here it is a preference: who has nothing ready of the
 * group takes the next.
 */
export function depthFirst({ stages, chunks }: IPlanShape): IGreedyRule {
  return {
    turns: true,
    rank: (virtual, microBatch, backward) => {
      const chunk = chunkOf(virtual, stages, chunks, backward);
      const group = Math.floor(microBatch / stages);
      return (group * chunks + chunk) * stages + (microBatch % stages);
    }
  };
}

/**
 * Breadth-first: of what is ready, backward passes first, and the pass that comes first where all micro-batches go through one chunk before the next.
 *
 * Lamy-Poirier 2022, "Breadth-First Pipeline Parallelism", section 4. There all forward passes come before all backward passes; taking backward passes as
 * soon as they are ready is as long and keeps less.
 */
export function breadthFirst({ stages, chunks, micro_batches }: IPlanShape): IGreedyRule {
  return {
    turns: false,
    forwardFirst: true,
    rank: (virtual, microBatch, backward) =>
      chunkOf(virtual, stages, chunks, backward) * micro_batches + microBatch
  };
}

/**
 * MegaDPP: the preference of breadth-first, in turns of at most one backward and one forward pass.
 *
 * MegatronApp's scheduler of dynamic pipeline planning, the function `forward_backward_pipelining_with_interleaving_dpp`: a turn looks for a backward pass, then for a forward pass, each the first of its
 * list that is ready.
 */
export function megaDpp(shape: IPlanShape): IGreedyRule {
  return { ...breadthFirst(shape), turns: true };
}

/** Chunk of a virtual stage, of a backward pass counted from the last. */
function chunkOf(virtual: number, stages: number, chunks: number, backward: boolean): number {
  const chunk = Math.floor(virtual / stages);
  return backward ? chunks - 1 - chunk : chunk;
}

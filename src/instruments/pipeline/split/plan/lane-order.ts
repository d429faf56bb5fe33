import type { SplitFamily } from '../protocol/split.generated';
import { isApart } from './layout-shape';
import type { ISplitLane, SplitKind } from './split-planned';

/** A pass of a micro-batch. */
export interface ISplitPass {
  readonly kind: SplitKind;
  readonly microBatch: number;
}

/** What a layout's order depends on. */
export interface IOrderShape {
  readonly family: SplitFamily;
  readonly stages: number;
  /** Of a replica. */
  readonly microBatches: number;
  /** Micro-batches that a backward process recomputes ahead. */
  readonly ahead: number;
}

/** The passes of a process, in its order. */
export function laneOrder(
  { role, stage }: Pick<ISplitLane, 'role' | 'stage'>,
  { family, stages, microBatches, ahead }: IOrderShape
): ISplitPass[] {
  const passes: ISplitPass[] = [];
  const isAgain = family === 'recompute' || family === 'pipeline_recompute';
  // By how many micro-batches backward passes follow.
  const lag = role === 'forward' ? microBatches : role === 'backward' ? ahead : stages - 1 - stage;
  for (let at = 0; at < microBatches + lag; at += 1) {
    if (role === 'backward' && at >= lag) {
      passes.push({ kind: 'B', microBatch: at - lag });
    }
    if (at < microBatches) {
      passes.push({ kind: role === 'backward' ? 'R' : 'F', microBatch: at });
    }
    if (role === 'both' && at >= lag) {
      const kinds: SplitKind[] = isAgain ? ['R', 'B'] : ['B'];
      passes.push(...kinds.map(kind => ({ kind, microBatch: at - lag })));
    }
  }
  return passes;
}

/** A pass with the stage that does it. */
export interface IProofPass extends ISplitPass {
  readonly stage: number;
}

/**
 * All passes of a replica in an order in which none waits for a later one: neither for one before it in its process, nor for a message. That there is one is why a step cannot
 * deadlock, however slow its processes and links are.
 *
 * Forward and backward apart: rounds of the forward passes, in both processes, of one micro-batch by rising stage, and of the backward passes of the micro-batch `ahead` - 1 before
 * it by falling stage. Together, which is 1F1B: rounds of a diagonal of forward passes, and of the backward passes of the micro-batch that has just passed the last stage.
 */
export function orderProof({ family, stages, microBatches, ahead }: IOrderShape): IProofPass[] {
  const proof: IProofPass[] = [];
  const apart = isApart(family);
  const isAgain = family === 'recompute' || family === 'pipeline_recompute';
  const behind = apart ? Math.min(ahead, microBatches) - 1 : stages - 1;
  const enter = (kind: SplitKind, stage: number, microBatch: number): void => {
    if (microBatch >= 0 && microBatch < microBatches) {
      proof.push({ kind, stage, microBatch });
    }
  };
  // MegaFBD hands inputs to backward processes later, but its forward processes wait for none of them.
  for (let round = 0; round < microBatches && apart; round += 1) {
    for (let stage = 0; stage < stages && family === 'megafbd'; stage += 1) {
      enter('F', stage, round);
    }
  }
  for (let round = 0; round < microBatches + behind; round += 1) {
    for (let stage = 0; stage < stages; stage += 1) {
      if (family !== 'megafbd') {
        enter('F', stage, apart ? round : round - stage);
      }
      if (apart) {
        enter('R', stage, round);
      }
    }
    for (let stage = stages - 1; stage >= 0; stage -= 1) {
      if (isAgain) {
        enter('R', stage, round - behind);
      }
      enter('B', stage, round - behind);
    }
  }
  return proof;
}

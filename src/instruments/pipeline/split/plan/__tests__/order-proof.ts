import { isApart } from '../split-request';
import type { IOrderShape, ISplitPass, SplitKind } from '../planned-split';

interface IProofPass extends ISplitPass {
  readonly stage: number;
}

/**
 * All passes of a replica in an order in which none waits for a later one: neither for one before it in its
 * process, nor for a message. That there is one is why a step cannot deadlock, however slow its processes and
 * links are.
 *
 * Forward and backward apart: rounds of the forward passes, in both processes, of one micro-batch by rising
 * stage, and of the backward passes of the micro-batch `ahead` - 1 before it by falling stage. Together,
 * which is 1F1B: rounds of a diagonal of forward passes, and of the backward passes of the micro-batch that
 * has just passed the last stage.
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

import { StageOrder } from './stage-order';

/**
 * ZB-V: two chunks of a stage in a V, so that the loss is on the first stage, and backward passes in two parts.
 *
 * Qi et al. 2024, "Pipeline Parallelism with Controllable Memory", section 4: no bubble where F, I and W take the same time, with the memory of 1F1B.
 * A stage first lets the first chunk run ahead until the second one's first input is there, then alternates; what fewer than 2P - 1 micro-batches lack is left out of that order.
 */
export function zeroBubbleV(stage: number, stages: number, microBatches: number): StageOrder {
  const order = new StageOrder();
  const down = stage;
  const up = 2 * stages - 1 - stage;
  const count = Math.max(microBatches, 2 * stages - 1);
  const done = { down: 0, up: 0, downBack: 0, upBack: 0 };
  const forwardDown = (): void => order.forward(down, done.down++);
  const forwardUp = (): void => order.forward(up, done.up++);
  const backDown = (): void => order.inputGradient(down, done.downBack++);
  const backUp = (): void => order.inputGradient(up, done.upBack++);
  for (let at = 0; at < 2 * (stages - stage) - 1; at += 1) {
    forwardDown();
  }
  for (let at = 0; at < stage; at += 1) {
    forwardUp();
    forwardDown();
  }
  for (let at = 0; at < stages - stage; at += 1) {
    forwardUp();
    backUp();
    order.weightGradient();
  }
  while (done.up < count) {
    if (done.down < count) {
      forwardDown();
    }
    backDown();
    order.weightGradient();
    forwardUp();
    backUp();
    order.weightGradient();
  }
  for (let at = 0; at < stage; at += 1) {
    backDown();
    backUp();
  }
  for (let at = 0; at < stages - stage; at += 1) {
    backDown();
    order.weightGradient(down);
  }
  // The second chunk's last ones first: they have waited longest.
  for (let at = 0; at < stage; at += 1) {
    order.weightGradient(up);
  }
  order.payAll();
  order.drop(microBatches);
  return order;
}

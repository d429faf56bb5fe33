import { StageOrder } from './stage-order';

/**
 * GPipe: all forward passes, then all backward passes.
 *
 * Huang et al. 2019, "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism". Keeps the activations of all micro-batches.
 */
export function gpipe(stage: number, _stages: number, microBatches: number): StageOrder {
  const order = new StageOrder();
  for (let at = 0; at < microBatches; at += 1) {
    order.forward(stage, at);
  }
  for (let at = 0; at < microBatches; at += 1) {
    order.backward(stage, at);
  }
  return order;
}

/**
 * 1F1B: as many forward passes as there are stages behind, then one forward and one backward pass in turn.
 *
 * Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", section 2.2.1. Stage r keeps at most P - r micro-batches.
 */
export function oneForwardOneBackward(stage: number, stages: number, microBatches: number): StageOrder {
  const order = new StageOrder();
  const ahead = Math.min(stages - 1 - stage, microBatches);
  for (let at = 0; at < microBatches + ahead; at += 1) {
    if (at < microBatches) {
      order.forward(stage, at);
    }
    if (at >= ahead) {
      order.backward(stage, at - ahead);
    }
  }
  return order;
}

/**
 * ZB-H1 (ZB1P): 1F1B with backward passes in two parts, of which stage r lets r weight gradients wait until the step's end.
 *
 * Qi et al. 2023, "Zero Bubble Pipeline Parallelism", section 2.3. A stage keeps at most P micro-batches, whole or in part.
 */
export function zeroBubbleH1(stage: number, stages: number, microBatches: number): StageOrder {
  return zeroBubble(stage, stages - 1 - stage, stage, microBatches);
}

/**
 * ZB-H2 (ZB2P): as ZB-H1, with so many more forward passes first that no stage waits for its first gradient, and twice as many weight gradients that wait.
 *
 * Qi et al. 2023, "Zero Bubble Pipeline Parallelism", section 2.3. A stage keeps at most 2P - 1 micro-batches, whole or in part.
 */
export function zeroBubbleH2(stage: number, stages: number, microBatches: number): StageOrder {
  return zeroBubble(stage, 2 * (stages - 1 - stage), 2 * stage, microBatches);
}

function zeroBubble(stage: number, ahead: number, owed: number, microBatches: number): StageOrder {
  const order = new StageOrder();
  const first = Math.min(ahead, microBatches);
  for (let at = 0; at < microBatches + first; at += 1) {
    if (at < microBatches) {
      order.forward(stage, at);
    }
    if (at >= first) {
      order.inputGradient(stage, at - first);
      if (order.owes > owed) {
        order.weightGradient();
      }
    }
  }
  order.payAll();
  return order;
}

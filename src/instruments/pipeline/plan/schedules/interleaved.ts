import { StageOrder } from './stage-order';

/**
 * Interleaved 1F1B: groups of P micro-batches go through all chunks of a stage; stage r runs 2(P - 1 - r) + (V - 1)P forward passes ahead.
 *
 * Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", section 2.2.2; the number of forward passes is that of Megatron-LM.
 *
 * @param microBatches - A multiple of the stages.
 */
export function interleaved(stage: number, stages: number, chunks: number, microBatches: number): StageOrder {
  const order = new StageOrder();
  const count = chunks * microBatches;
  const ahead = Math.min(2 * (stages - 1 - stage) + (chunks - 1) * stages, count);
  for (let at = 0; at < count + ahead; at += 1) {
    if (at < count) {
      const { chunk, microBatch } = passOf(at, stages, chunks);
      order.forward(chunk * stages + stage, microBatch);
    }
    if (at >= ahead) {
      const { chunk, microBatch } = passOf(at - ahead, stages, chunks);
      order.backward((chunks - 1 - chunk) * stages + stage, microBatch);
    }
  }
  return order;
}

/** Chunk and micro-batch of a stage's pass, counted in groups of P micro-batches that go through all chunks; of a backward pass the chunk counts from the last. */
function passOf(at: number, stages: number, chunks: number): { chunk: number; microBatch: number } {
  const group = Math.floor(at / (stages * chunks));
  const rest = at % (stages * chunks);
  return { chunk: Math.floor(rest / stages), microBatch: group * stages + (rest % stages) };
}

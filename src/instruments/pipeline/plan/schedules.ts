import type { IGreedyRule } from './greedy-order';
import type { IPlanShape } from './plan-shape';
import { BACKWARD, FORWARD, INPUT_GRADIENT, operationName, WEIGHT_GRADIENT } from './plan-shape';

/**
 * Interleaved 1F1B: groups of P micro-batches go through all chunks of a stage; stage r runs 2(P - 1 - r) +
 * (V - 1)P forward passes ahead.
 *
 * Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM",
 * section 2.2.2; the number of forward passes is that of Megatron-LM.
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

/** Chunk and micro-batch of a stage's pass, in groups of P micro-batches; backward, chunks are reversed. */
function passOf(at: number, stages: number, chunks: number): { chunk: number; microBatch: number } {
  const group = Math.floor(at / (stages * chunks));
  const rest = at % (stages * chunks);
  return { chunk: Math.floor(rest / stages), microBatch: group * stages + (rest % stages) };
}

/**
 * GPipe: all forward passes, then all backward passes.
 *
 * Huang et al. 2019, "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism". Keeps
 * the activations of all micro-batches.
 */
export const gpipe = (stage: number, _stages: number, microBatches: number): StageOrder =>
  inTurn(stage, microBatches, microBatches);

/**
 * 1F1B: as many forward passes as there are stages behind, then one forward and one backward pass in turn.
 *
 * Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM",
 * section 2.2.1. Stage r keeps at most P - r micro-batches.
 */
export const oneForwardOneBackward = (stage: number, stages: number, microBatches: number): StageOrder =>
  inTurn(stage, Math.min(stages - 1 - stage, microBatches), microBatches);

/** So many forward passes first, then one forward and one backward pass in turn. */
function inTurn(stage: number, ahead: number, microBatches: number): StageOrder {
  const order = new StageOrder();
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
 * ZB-H1 (ZB1P): 1F1B with backward passes in two parts, of which stage r lets r weight gradients wait until
 * the step's end.
 *
 * Qi et al. 2023, "Zero Bubble Pipeline Parallelism", section 2.3. A stage keeps at most P micro-batches,
 * whole or in part.
 */
export function zeroBubbleH1(stage: number, stages: number, microBatches: number): StageOrder {
  return zeroBubble(stage, stages - 1 - stage, stage, microBatches);
}

/**
 * ZB-H2 (ZB2P): as ZB-H1, with so many more forward passes first that no stage waits for its first gradient,
 * and twice as many weight gradients that wait.
 *
 * Qi et al. 2023, "Zero Bubble Pipeline Parallelism", section 2.3. A stage keeps at most 2P - 1
 * micro-batches, whole or in part.
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

/**
 * ZB-V: two chunks of a stage in a V, so that the loss is on the first stage, and backward passes in two
 * parts.
 *
 * Qi et al. 2024, "Pipeline Parallelism with Controllable Memory", section 4: no bubble where F, I and W take
 * the same time, with the memory of 1F1B. A stage first lets the first chunk run ahead until the second one's
 * first input is there, then alternates; what fewer than 2P - 1 micro-batches lack is left out of that order.
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

/** One of the two directions of micro-batches: its virtual stage on this stage, and its first micro-batch. */
interface IWay {
  readonly virtual: number;
  readonly first: number;
}

/**
 * DualPipe: two copies of the model, whose micro-batches start at both ends of the pipeline and pass each
 * other.
 *
 * DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", section 3.2.1, in the eight phases that the DualPipe
 * repository documents. Where it overlaps a forward with a backward pass, this is the one followed by the
 * other.
 * @param stages - Even.
 * @param microBatches - Even, at least twice the stages.
 */
export function dualPipe(stage: number, stages: number, microBatches: number): StageOrder {
  const half = microBatches / 2;
  const down = { virtual: stage, first: 0 };
  const up = { virtual: 2 * stages - 1 - stage, first: half };
  const near = Math.min(stage, stages - 1 - stage);
  return stage < stages / 2 ? dual(near, stages / 2, half, down, up) : dual(near, stages / 2, half, up, down);
}

/**
 * DualPipeV: the same order with one copy of the model, laid in a V over half as many stages.
 *
 * The DualPipe repository's README, after Sea AI Lab's "cut-in-half".
 */
export function dualPipeV(stage: number, stages: number, microBatches: number): StageOrder {
  return dual(
    stage,
    stages,
    microBatches,
    { virtual: stage, first: 0 },
    { virtual: 2 * stages - 1 - stage, first: 0 }
  );
}

/** @param place - Stages between the pipeline's end where `near` starts and this stage. */
function dual(index: number, depth: number, count: number, near: IWay, far: IWay): StageOrder {
  const order = new StageOrder();
  const forwards = new Map([
    [near, near.first],
    [far, far.first]
  ]);
  const backwards = new Map(forwards);
  const take = (counts: Map<IWay, number>, way: IWay): number => {
    const microBatch = counts.get(way)!;
    counts.set(way, microBatch + 1);
    return microBatch;
  };
  const forward = (way: IWay): void => order.forward(way.virtual, take(forwards, way));
  const backward = (way: IWay, split = false): void =>
    split
      ? order.inputGradient(way.virtual, take(backwards, way))
      : order.backward(way.virtual, take(backwards, way));
  const behind = depth - 1 - index;

  repeat(2 * behind, () => forward(near));
  repeat(index + 1, () => {
    forward(near);
    forward(far);
  });
  repeat(behind, () => {
    backward(far, true);
    order.weightGradient();
    forward(far);
  });
  repeat(count - 2 * depth + index + 1, () => {
    forward(near);
    backward(far);
    forward(far);
    backward(near);
  });
  repeat(behind, () => {
    backward(far);
    forward(far);
    backward(near);
  });
  // Of the last backward passes the second half is split, so that the stages behind get their gradients
  // sooner.
  repeat(2 * (index + 1), at => backward(at % 2 === 0 ? far : near, at >= index + 1));
  repeat(behind, () => {
    order.weightGradient();
    backward(near, true);
  });
  order.payAll();
  return order;
}

function repeat(times: number, what: (at: number) => void): void {
  for (let at = 0; at < times; at += 1) {
    what(at);
  }
}

/**
 * Depth-first: of what is ready, backward passes first, and the pass that comes first where groups of P
 * micro-batches go through all chunks of a stage, one group after the other.
 *
 * Lamy-Poirier 2022, "Breadth-First Pipeline Parallelism", section 3, calls the order of interleaved 1F1B
 * depth-first. Here it is a preference: who has nothing ready of the group takes the next.
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
 * Breadth-first: of what is ready, backward passes first, and the pass that comes first where all
 * micro-batches go through one chunk before the next.
 *
 * Lamy-Poirier 2022, "Breadth-First Pipeline Parallelism", section 4. There all forward passes come before
 * all backward passes; taking backward passes as soon as they are ready is as long and keeps less.
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
 * MegatronApp's scheduler of dynamic pipeline planning, the function
 * `forward_backward_pipelining_with_interleaving_dpp`: a turn looks for a backward pass, then for a forward
 * pass, each the first of its list that is ready.
 */
export const megaDpp = (shape: IPlanShape): IGreedyRule => ({ ...breadthFirst(shape), turns: true });

/** Chunk of a virtual stage, of a backward pass counted from the last. */
function chunkOf(virtual: number, stages: number, chunks: number, backward: boolean): number {
  const chunk = Math.floor(virtual / stages);
  return backward ? chunks - 1 - chunk : chunk;
}

/** Writes down what one stage does, one operation after the other. */
export class StageOrder {
  words: string[] = [];

  forward(virtual: number, microBatch: number): void {
    this.words.push(operationName(virtual, FORWARD, microBatch));
  }

  backward(virtual: number, microBatch: number): void {
    this.words.push(operationName(virtual, BACKWARD, microBatch));
  }

  /** The input's gradient; the weights' gradients are owed from now on. */
  inputGradient(virtual: number, microBatch: number): void {
    this.words.push(operationName(virtual, INPUT_GRADIENT, microBatch));
    this.owed.push(operationName(virtual, WEIGHT_GRADIENT, microBatch));
  }

  /**
   * The weights' gradients that have been owed longest; nothing where none are.
   * @param virtual - Of this virtual stage; of any when absent.
   */
  weightGradient(virtual?: number): void {
    const at = virtual === undefined ? 0 : this.owed.findIndex(word => word.startsWith(`${virtual}W`));
    this.words.push(...this.owed.splice(at < 0 ? this.owed.length : at, 1));
  }

  get owes(): number {
    return this.owed.length;
  }

  /** All that are owed. */
  payAll(): void {
    while (this.owes > 0) {
      this.weightGradient();
    }
  }

  /** Leave out micro-batches from one on. */
  drop(microBatch: number): void {
    this.words = this.words.filter(word => Number(word.split(/[FBIW]/)[1]) < microBatch);
  }

  private readonly owed: string[] = [];
}

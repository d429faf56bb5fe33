import { StageOrder } from './stage-order';

/** One of the two ways that micro-batches take: its virtual stage on this stage, and its first micro-batch. */
interface IWay {
  readonly virtual: number;
  readonly first: number;
}

/**
 * DualPipe: two copies of the model, whose micro-batches start at both ends of the pipeline and pass each other.
 *
 * DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", section 3.2.1, in the eight phases that the DualPipe repository documents. Where it overlaps a forward with a backward pass, this
 * is the one followed by the other.
 *
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
 *
 * @param microBatches - At least twice the stages.
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

/**
 * @param place - Stages between the pipeline's end where `near` starts and this stage.
 * @param depth - Stages between that end and where the two ways meet.
 * @param count - Micro-batches of each way.
 */
function dual(place: number, depth: number, count: number, near: IWay, far: IWay): StageOrder {
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
  const behind = depth - 1 - place;

  repeat(2 * behind, () => forward(near));
  repeat(place + 1, () => {
    forward(near);
    forward(far);
  });
  repeat(behind, () => {
    backward(far, true);
    order.weightGradient();
    forward(far);
  });
  repeat(count - 2 * depth + place + 1, () => {
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
  // Of the last backward passes the second half is split, so that the stages behind get their gradients sooner.
  repeat(2 * (place + 1), at => backward(at % 2 === 0 ? far : near, at >= place + 1));
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

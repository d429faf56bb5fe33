import type { PipelineTimes, Placement, Plan } from '../protocol/pipeline.generated';
import { greedyOrder } from './greedy-order';
import { PlanError } from './plan-error';
import { stageOf, virtualStages, type IPlanShape } from './plan-shape';
import { timesFor, type IStageTimes } from './stage-times';

/** What a search is asked. */
export interface ISearchRequest {
  readonly stages: number;
  readonly micro_batches: number;
  readonly chunks: number;
  readonly times: PipelineTimes;
  /** Bytes that a stage may hold; Infinity where there is no limit. */
  readonly memoryBytes: number;
  readonly seed: number;
  /** Orders that may be tried. */
  readonly effort: number;
}

/** First form: to be replaced. */
export function* searchPlan(request: ISearchRequest): Generator<void, Plan> {
  const shape: IPlanShape = {
    stages: request.stages,
    chunks: request.chunks,
    micro_batches: request.micro_batches,
    placement: 'loop' as Placement
  };
  const times = timesFor(request.times, shape);
  const most = microBatchesThatFit(shape, times, request.memoryBytes);
  yield;
  const order = greedyOrder(shape, times, {
    turns: true,
    split: true,
    most,
    rank: (virtual, microBatch) => microBatch * virtualStages(shape) + virtual
  });
  return { schedule: 'search', ...shape, order: order.map(words => words.join(' ')) };
}

/**
 * How many micro-batches each stage can hold at once, whole.
 *
 * @throws PlanError `memory` where one does not fit.
 */
export function microBatchesThatFit(shape: IPlanShape, times: IStageTimes, memoryBytes: number): number[] {
  const each = new Float64Array(shape.stages);
  times.activation.forEach((bytes, virtual) => (each[stageOf(virtual, shape)]! += bytes));
  return Array.from(each, (bytes, stage) => {
    const weights = times.weights[stage]!;
    if (weights + bytes > memoryBytes) {
      throw new PlanError(
        'memory',
        `Stage ${stage} needs ${weights + bytes} bytes for its weights and one micro-batch, got a limit of ${memoryBytes}. Try more stages, or recompute activations.`,
        { stage }
      );
    }
    return bytes === 0 ? Infinity : Math.floor((memoryBytes - weights) / bytes);
  });
}

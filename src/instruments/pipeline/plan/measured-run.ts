import type { IPipelineSteps } from '../client/pipeline-api';
import type { PipelineTimes, PlanRequest } from '../protocol/pipeline.generated';
import type { IMeasured } from './measured';
import { planFromMeasured } from './plan-from-measured';
import type { IPlanShape } from './plan-shape';
import { timesFromMeasured, type IMeasuredTimes } from './times-from-measured';

/** Stages of a plan for a run that is no pipeline, and its micro-batches a stage. */
const USUAL = { stages: 4, microBatches: 2 };

/** The steps that a run measured, in the form of the planner. */
export interface IMeasuredRun {
  readonly steps: IPipelineSteps;
  readonly rows: IMeasured;
  /** With one stage where the run is no pipeline. */
  readonly shape: IPlanShape;
  readonly times: IMeasuredTimes;
}

/** A `PlanRequest` of which anything may be left to what was measured. */
export type PlanWish = Partial<Omit<PlanRequest, 'times'>> & { readonly times?: Partial<PipelineTimes> };

/**
 * Read measured steps; null where there are none.
 *
 * @throws PlanError `missing` where passes are lacking.
 */
export function measuredRun(steps: IPipelineSteps | null): IMeasuredRun | null {
  if (steps === null || steps.operations.step.length === 0) {
    return null;
  }
  const { operations, stages, chunks, microBatches, placement } = steps;
  const rows = { ...operations, micro_batch: operations.microBatch };
  const shape = { stages, chunks, micro_batches: microBatches, placement };
  return { steps, rows, shape, times: timesFromMeasured(rows, shape) };
}

/**
 * Fill up a wish with what was measured: the times, and of a pipeline its stages, its micro-batches, and its own order as plan where these are its own. The model of a run
 * that is no pipeline is cut into equal stages. Without either a forward pass takes 1 ms.
 */
export function requestOf(wish: PlanWish, measured: IMeasuredRun | null): PlanRequest {
  const pipeline = measured !== null && measured.shape.stages > 1 ? measured : null;
  const stages = wish.stages ?? pipeline?.shape.stages ?? USUAL.stages;
  const count = wish.micro_batches ?? pipeline?.shape.micro_batches ?? stages * USUAL.microBatches;
  const isOwn = pipeline?.shape.stages === stages && pipeline.shape.micro_batches === count;
  const times = { forward: 1, ...measured?.times.times, ...wish.times };
  // Whoever changes a part means the whole, too.
  const { backward: whole, ...parts } = times;
  const isChanged = wish.times?.input_gradient ?? wish.times?.weight_gradient;
  const keepsWhole = whole !== undefined && (wish.times?.backward !== undefined || isChanged === undefined);
  return {
    ...wish,
    stages,
    micro_batches: count,
    times: keepsWhole ? { ...parts, backward: whole } : parts,
    ...(pipeline && isOwn && wish.plan === undefined
      ? { plan: planFromMeasured(pipeline.rows, pipeline.shape) }
      : {})
  };
}

import type { IPipelineSteps } from '../../client/pipeline-api';
import type { PipelineTimes, PlanRequest } from '../../protocol/pipeline.generated';
import type { PipelineOptions } from '../../protocol/views.generated';

const MB = 1e6;
const GB = 1e9;
/** Bytes a ms of a link that carries 1 GB/s. */
const GB_PER_S = 1e6;
/** Stages of a plan for a run that has one, and its micro-batches a stage. */
const USUAL = { stages: 4, microBatches: 2 };

type Options = Required<PipelineOptions>;

/** Numbers that a slider changes. */
export type Setting =
  | 'activation_mb'
  | 'bandwidth'
  | 'chunks'
  | 'forward'
  | 'input_gradient'
  | 'jitter'
  | 'latency'
  | 'memory_gb'
  | 'message_mb'
  | 'micro_batches'
  | 'optimizer'
  | 'stages'
  | 'weight_gradient'
  | 'weight_mb';

/** What the planner is asked, and the number that stands for each setting in it. */
export interface IWhatIf {
  readonly request: PlanRequest;
  readonly values: Readonly<Record<Setting, number>>;
}

/**
 * What the options ask the planner, filled up with what was measured.
 *
 * @param measured - The run's own steps; null where there are none.
 * @param own - Their times; null where there are none.
 */
export function whatIf(
  options: Options,
  measured: Pick<IPipelineSteps, 'microBatches' | 'stages'> | null,
  own: PipelineTimes | null
): IWhatIf {
  const isPipeline = measured !== null && measured.stages > 1;
  const stages = options.stages || (isPipeline ? measured.stages : USUAL.stages);
  const microBatches =
    options.micro_batches || (isPipeline ? measured.microBatches : stages * USUAL.microBatches);
  // What was measured are lists over the model's depth: they can be cut into any number of stages.
  const forward = options.forward ?? own?.forward ?? 1;
  const inputGradient = options.input_gradient ?? own?.input_gradient ?? forward;
  const weightGradient = options.weight_gradient ?? own?.weight_gradient ?? forward;
  const optimizer = options.optimizer ?? own?.optimizer ?? 0;
  const latency = options.latency ?? own?.latency ?? 0;
  const bandwidth = options.bandwidth === null ? (own?.bandwidth ?? null) : options.bandwidth * GB_PER_S;
  const jitter = options.jitter === null ? (own?.jitter ?? 0) : options.jitter / 100;
  const times: PipelineTimes = {
    forward,
    input_gradient: inputGradient,
    weight_gradient: weightGradient,
    optimizer,
    latency,
    bandwidth: bandwidth || null,
    jitter,
    message_bytes: options.message_mb * MB,
    activation_bytes: options.activation_mb * MB,
    weight_bytes: options.weight_mb * MB
  };
  return {
    request: {
      stages,
      micro_batches: microBatches,
      chunks: options.chunks,
      times,
      memory_bytes: options.memory_gb === null ? null : options.memory_gb * GB
    },
    values: {
      stages,
      micro_batches: microBatches,
      chunks: options.chunks,
      forward: meanOf(forward, stages),
      input_gradient: meanOf(inputGradient, stages),
      weight_gradient: meanOf(weightGradient, stages),
      optimizer: meanOf(optimizer, stages),
      latency,
      bandwidth: (bandwidth ?? 0) / GB_PER_S,
      jitter: jitter * 100,
      message_mb: options.message_mb,
      activation_mb: options.activation_mb,
      weight_mb: options.weight_mb,
      memory_gb: options.memory_gb ?? 0
    }
  };
}

/** The mean of a stage: a list holds shares of the whole. */
function meanOf(value: number | number[], stages: number): number {
  return Array.isArray(value) ? value.reduce((sum, each) => sum + each, 0) / stages : value;
}

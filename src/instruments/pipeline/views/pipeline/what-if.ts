import { requestOf, type IMeasuredRun, type PlanWish } from '../../plan';
import type { PipelineTimes, PlanRequest } from '../../protocol/pipeline.generated';
import type { PipelineOptions } from '../../../../protocol/views.generated';

const MB = 1e6;
const GB = 1e9;
/** Bytes a ms of a link that carries 1 GB/s. */
const GB_PER_S = 1e6;

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

/** What the options ask the planner, filled up with what was measured; null where nothing was. */
export function whatIf(options: Options, measured: IMeasuredRun | null): IWhatIf {
  const { bandwidth, chunks, jitter, memory_gb: memory, micro_batches: count, stages } = options;
  const times: Partial<PipelineTimes> = {
    ...chosen('forward', options.forward),
    ...chosen('input_gradient', options.input_gradient),
    ...chosen('weight_gradient', options.weight_gradient),
    ...chosen('optimizer', options.optimizer),
    ...chosen('latency', options.latency),
    ...chosen('jitter', jitter === null ? null : jitter / 100),
    ...(bandwidth === null ? {} : { bandwidth: bandwidth === 0 ? null : bandwidth * GB_PER_S }),
    message_bytes: options.message_mb * MB,
    activation_bytes: options.activation_mb * MB,
    weight_bytes: options.weight_mb * MB
  };
  const wish: PlanWish = {
    ...(stages > 0 ? { stages } : {}),
    ...(count > 0 ? { micro_batches: count } : {}),
    chunks,
    times,
    memory_bytes: memory === null ? null : memory * GB
  };
  const request = requestOf(wish, measured);
  const mean = (value: PipelineTimes['forward'] | undefined, otherwise: number): number =>
    meanOf(value ?? otherwise, request.stages);
  const forward = mean(request.times.forward, 1);
  return {
    request,
    values: {
      stages: request.stages,
      micro_batches: request.micro_batches,
      chunks,
      forward,
      input_gradient: mean(request.times.input_gradient, forward),
      weight_gradient: mean(request.times.weight_gradient, forward),
      optimizer: mean(request.times.optimizer, 0),
      latency: request.times.latency ?? 0,
      bandwidth: (request.times.bandwidth ?? 0) / GB_PER_S,
      jitter: 100 * (request.times.jitter ?? 0),
      message_mb: options.message_mb,
      activation_mb: options.activation_mb,
      weight_mb: options.weight_mb,
      memory_gb: memory ?? 0
    }
  };
}

const chosen = <K extends string>(name: K, value: number | null): Partial<Record<K, number>> =>
  (value === null ? {} : { [name]: value }) as Partial<Record<K, number>>;

/** The mean of a stage: a list holds shares of the whole. */
function meanOf(value: number | number[], stages: number): number {
  return Array.isArray(value) ? value.reduce((sum, each) => sum + each, 0) / stages : value;
}

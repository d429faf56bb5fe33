// Generated from protocol/pipeline.schema.json by scripts/generate-protocol.mjs. Do not edit: run `npm run generate`.

/**
 * Plans of pipeline schedules, and what a planner is asked: the same JSON in the page, the kernel, files and the training.
 */
export type PipelineMessage = Plan | PlanRequest;
/**
 * Which stage holds which virtual stage v, of P stages. loop: v mod P. v: every second chunk runs back, so that stage r of 2 chunks holds r and 2P-1-r. two_way: two copies of the model, each of P virtual stages; v below P on stage v for the first half of the micro-batches, from P on at stage 2P-1-v for the others, which run the other way: virtual stage P+i is the same part of the model as i.
 */
export type Placement = 'loop' | 'v' | 'two_way';
/**
 * A schedule that the planner makes. search: the best order that is found for these times under this memory limit.
 */
export type ScheduleName =
  | 'gpipe'
  | '1f1b'
  | 'interleaved_1f1b'
  | 'depth_first'
  | 'breadth_first'
  | 'megadpp'
  | 'zb_h1'
  | 'zb_h2'
  | 'zb_v'
  | 'dualpipe'
  | 'dualpipev'
  | 'search';

/**
 * What each pipeline stage does in a step, in order.
 */
export interface Plan {
  /**
   * Name of the schedule, or what somebody calls an order of their own.
   */
  schedule: string;
  /**
   * Pipeline stages P: ranks of one pipeline.
   */
  stages: number;
  /**
   * Model chunks V of a stage. There are P * V virtual stages, counted from 0 in the order of the model's layers.
   */
  chunks: number;
  /**
   * Micro-batches M of a step.
   */
  micro_batches: number;
  placement: Placement;
  /**
   * For each stage its operations, separated by one space, in the notation of torch.distributed.pipelining: virtual stage, letter, micro-batch. F is a forward pass; B a whole backward pass; I its gradient of the input (dgrad) and W its gradients of the weights (wgrad), where it is done in two. 5F2 is the forward pass of micro-batch 2 through virtual stage 5.
   */
  order: string[];
}

/**
 * Schedules to be planned for one set of times, side by side.
 */
export interface PlanRequest {
  /**
   * Which; all that fit this many chunks and micro-batches when absent.
   */
  schedules?: ScheduleName[];
  plan?: Plan;
  stages: number;
  micro_batches: number;
  /**
   * Model chunks of a stage, for the schedules that take several. 2 when absent. ZB-V, DualPipe and DualPipeV always have 2, GPipe, 1F1B, ZB-H1 and ZB-H2 have 1.
   */
  chunks?: number;
  times: PipelineTimes;
  /**
   * What a stage may hold: weights and activations. null or absent: no limit.
   */
  memory_bytes?: number | null;
  /**
   * Of jitter and search. 1 when absent.
   */
  seed?: number;
  /**
   * Orders that the search may try. 2000 when absent.
   */
  effort?: number;
}

/**
 * What a step is made of. A list holds equal shares of the model's depth in the order of its layers, such as one for each stage or each virtual stage, and is summed up or shared out to as many as are needed; one number is that of each stage, of all its chunks together. Times are ms, sizes bytes.
 */
export interface PipelineTimes {
  /**
   * A forward pass of one micro-batch.
   */
  forward: number | number[];
  /**
   * The part of a backward pass that gives the gradient of the stage's input. The time of forward when absent.
   */
  input_gradient?: number | number[];
  /**
   * The part of a backward pass that gives the gradients of the weights. The time of forward when absent.
   */
  weight_gradient?: number | number[];
  /**
   * A whole backward pass, where it takes less than its two parts one after the other. The sum of both when absent.
   */
  backward?: number | number[];
  /**
   * The optimizer's step, once the stage's own backward passes are done. 0 when absent.
   */
  optimizer?: number | number[];
  /**
   * ms before a message between two stages begins to arrive. 0 when absent.
   */
  latency?: number;
  /**
   * Bytes a ms that a link between two stages carries in each direction (1e6 is 1 GB/s); null or absent: no limit. Messages of one direction follow one another.
   */
  bandwidth?: number | null;
  /**
   * Links that are unlike the others.
   */
  links?: {
    from: number;
    to: number;
    latency?: number;
    bandwidth?: number | null;
  }[];
  /**
   * Bytes of the activations of one micro-batch between two virtual stages, and of their gradient. 0 when absent.
   */
  message_bytes?: number;
  /**
   * What a forward pass keeps for its backward pass, of one micro-batch. 0 when absent.
   */
  activation_bytes?: number | number[];
  /**
   * What of it the input's gradient leaves for the weights' gradients. All of it when absent.
   */
  weight_gradient_bytes?: number | number[];
  /**
   * Weights, their gradients and optimizer state. 0 when absent.
   */
  weight_bytes?: number | number[];
  /**
   * Standard deviation of each duration, as a share of it. 0 when absent.
   */
  jitter?: number;
}

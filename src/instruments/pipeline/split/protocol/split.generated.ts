// Generated from protocol/split.schema.json by scripts/generate-protocol.mjs. Do not edit: run `npm run generate`.

/**
 * Trainings whose forward and backward passes run in different processes: which process does what, and what a planner is asked about them.
 */
export type SplitMessage = RankMapRequest | SplitRequest;
/**
 * megalens: as megalens.split runs it, without a coordinator. megafbd: MegaFBD's with both of its flags, one forward process for each tensor-parallel group and an extra coordinator as rank 0. one_flag: what MegaFBD means by --forward-backward-disaggregating alone, every second tensor-parallel group a backward one. megalens when absent.
 */
export type RankMapName = 'megalens' | 'megafbd' | 'one_flag';
/**
 * ordinary: one stage, replicas side by side. recompute: the same, with activations computed anew for each backward pass. pipeline, pipeline_recompute: several stages in the order 1F1B. split: forward and backward processes. megafbd: the same as MegaFBD lays it out.
 */
export type SplitFamily = 'ordinary' | 'recompute' | 'pipeline' | 'pipeline_recompute' | 'split' | 'megafbd';

/**
 * Which process does what.
 */
export interface RankMapRequest {
  layout?: RankMapName;
  /**
   * Tensor-parallel degree of the backward processes.
   */
  tensor: number;
  /**
   * Pipeline stages P.
   */
  pipeline: number;
  /**
   * Of megalens: replicas, each with forward and backward processes. Of megafbd and one_flag: Megatron's data-parallel size, which counts both and is even: twice the replicas.
   */
  data: number;
  /**
   * Tensor-parallel degree of the forward processes, which divides tensor; that of tensor when absent. Only of megalens.
   */
  forward_tensor?: number | null;
  /**
   * Whether the last stage has forward processes, too: their output is of use to nobody but those who look at it. true when absent. Only of megalens.
   */
  last_forward?: boolean;
  /**
   * Context-parallel degree. No layout takes one above 1.
   */
  context?: number;
  /**
   * Expert-parallel degree. No layout takes one above 1.
   */
  expert?: number;
  /**
   * Processes that there are; refused where the layout needs another number.
   */
  world?: number | null;
  /**
   * A host file: a line for each host, such as `node1 slots=4 role=backward device=cuda`. role (forward, backward or any, which is meant when absent) is what its slots may hold; device is told the launcher. Text after # is a comment.
   */
  hosts?: string | null;
}

/**
 * Ways to train on the same devices, side by side: is a split worth it?
 */
export interface SplitRequest {
  devices: DeviceKind[];
  /**
   * Layers between which the model can be cut, or what each of them costs compared with the others. 12 alike when absent.
   */
  layers?: number | number[];
  /**
   * Micro-batches of a step, of all replicas together.
   */
  micro_batches: number;
  /**
   * Tensor-parallel degrees that are tried: 1, 2, 4 and so on up to this one. 1 when absent.
   */
  most_tensor?: number;
  /**
   * ms that a pass of a micro-batch through the whole model takes longer where devices share it. 0 when absent.
   */
  tensor_ms?: number;
  /**
   * ms before a message between two processes begins to arrive. 0 when absent.
   */
  latency?: number;
  /**
   * Bytes a ms that a link carries in each direction (1e6 is 1 GB/s); null or absent: no limit.
   */
  bandwidth?: number | null;
  /**
   * Bytes of the activations of one micro-batch between two layers. 0 when absent.
   */
  message_bytes?: number;
  /**
   * What the whole model keeps of one micro-batch for its backward pass. 0 when absent.
   */
  activation_bytes?: number;
  /**
   * Weights of the whole model. 0 when absent.
   */
  weight_bytes?: number;
  /**
   * Weights, gradients and optimizer state of the whole model, where it is trained. That of weight_bytes when absent.
   */
  state_bytes?: number;
  /**
   * Micro-batches that a backward process recomputes ahead of their gradients. 1 when absent.
   */
  ahead?: number;
  /**
   * Standard deviation of each given time of a kind of device, as a share of it: what the interval of the gain comes from. 0.05 when absent.
   */
  uncertainty?: number;
  layout?: SplitLayout;
  /**
   * Of the interval. 1 when absent.
   */
  seed?: number;
}

/**
 * Devices that are alike. Times are ms of one micro-batch through the whole model on one of them.
 */
export interface DeviceKind {
  name: string;
  count: number;
  /**
   * A forward pass without autograd.
   */
  forward: number;
  /**
   * A forward pass that keeps what the backward pass needs; as long as forward when absent.
   */
  recompute?: number;
  /**
   * A backward pass; twice as long as recompute when absent.
   */
  backward?: number;
  /**
   * The optimizer's step of the whole model. 0 when absent.
   */
  optimizer?: number;
  /**
   * What one device may hold. null or absent: no limit.
   */
  memory_bytes?: number | null;
}

/**
 * One way to train on the devices. Replicas are alike.
 */
export interface SplitLayout {
  family: SplitFamily;
  /**
   * Replicas. Each trains an equal part of the micro-batches.
   */
  data: number;
  /**
   * Devices that share a stage; of a split those of its backward process.
   */
  tensor: number;
  /**
   * Of a split: devices that share a stage's forward pass. That of tensor when absent.
   */
  forward_tensor?: number;
  /**
   * In the order of the model's layers.
   */
  stages: {
    /**
     * Kind of device, of a split that of its backward processes, counted from 0.
     */
    device: number;
    /**
     * Layers of the stage.
     */
    layers: number;
    /**
     * Of a split: kind of device of its forward processes. null where it has none: only the last stage may do without.
     */
    forward_device?: number | null;
  }[];
}

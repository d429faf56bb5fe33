import type { SplitFamily, SplitLayout } from '../protocol/split.generated';
import { isApart, devicesOf } from './split-request';
import type { SplitSimulation } from './split-simulation';

/** What one process of a replica does; of a tensor-parallel group its first. */
export interface ISplitLane {
  /** both: an ordinary process, which does forward and backward passes. */
  readonly role: 'backward' | 'both' | 'forward';
  readonly stage: number;
  readonly device: number;
}

/**
 * F: forward pass; R: forward pass that is done again, or in a backward process, for its backward pass; B:
 * backward pass; O: gradients are summed over replicas and the optimizer takes its step; W: new weights come
 * to a forward process.
 */
export type SplitKind = 'B' | 'F' | 'O' | 'R' | 'W';

/**
 * The operations of one replica's step as columns of one length, lane after lane in their order; empty where
 * there are more than 200,000, which nobody can draw. Times are ms from the step's begin.
 */
export interface ISplitOperations {
  readonly lane: readonly number[];
  readonly kind: readonly SplitKind[];
  /** -1 of O and W. */
  readonly microBatch: readonly number[];
  readonly begin: readonly number[];
  readonly end: readonly number[];
}

/** A layout and its simulated step. */
export interface ISplitPlanned {
  readonly layout: SplitLayout;
  /** Devices of each kind that it takes, a coordinator's among them. */
  readonly devices: readonly number[];
  /** ms from the begin of a step until the next can begin: with new weights where they are needed. */
  readonly stepMs: number;
  readonly lanes: readonly ISplitLane[];
  readonly operations: ISplitOperations;
  /** By lane: what a device holds at most, bytes. */
  readonly peakBytes: readonly number[];
  /** By how much the worst lane exceeds the memory of its device; 0 where none does. */
  readonly overMemoryBytes: number;
  /** Bytes that go between processes in a step, of all replicas. */
  readonly sentBytes: number;
}

/** What came of a family of layouts: the best of it, or why there is none. */
export type SplitOutcome =
  | ISplitPlanned
  | { readonly family: SplitFamily; readonly refused: { readonly code: string; readonly message: string } };

/** Whether a split is worth it. */
export interface ISplitVerdict {
  /** Whether the split's step is shorter by more than chance. */
  readonly isWorthIt: boolean;
  /** The best split, and the best of all others; null where there is none that fits in memory. */
  readonly split: ISplitPlanned | null;
  readonly other: ISplitPlanned | null;
  /**
   * By how much the split's step is longer, %: negative where it is shorter. 95 % of what the times may be by
   * their uncertainty lies between low and high. NaN where one of the two is lacking.
   */
  readonly percent: number;
  readonly lowPercent: number;
  readonly highPercent: number;
  /** Average cost of following a wrong verdict times its probability, % of the better step. */
  readonly regretPercent: number;
}

export interface ISplitPlan {
  /** The best of each family in the order of `SplitFamily`; a layout of one's own before them. */
  readonly layouts: readonly SplitOutcome[];
  readonly best: ISplitPlanned | null;
  readonly verdict: ISplitVerdict;
}

export interface ISplitPass {
  readonly kind: SplitKind;
  readonly microBatch: number;
}

/** What a layout's order depends on. */
export interface IOrderShape {
  readonly family: SplitFamily;
  readonly stages: number;
  /** Of a replica. */
  readonly microBatches: number;
  /** Micro-batches that a backward process recomputes ahead. */
  readonly ahead: number;
}

/** The passes of a process, in its order. */
export function laneOrder(
  { role, stage }: Pick<ISplitLane, 'role' | 'stage'>,
  { family, stages, microBatches, ahead }: IOrderShape
): ISplitPass[] {
  const passes: ISplitPass[] = [];
  const isRecomputing = family === 'recompute' || family === 'pipeline_recompute';
  // By how many micro-batches backward passes follow.
  const lag = role === 'forward' ? microBatches : role === 'backward' ? ahead : stages - 1 - stage;
  for (let at = 0; at < microBatches + lag; at += 1) {
    if (role === 'backward' && at >= lag) {
      passes.push({ kind: 'B', microBatch: at - lag });
    }
    if (at < microBatches) {
      passes.push({ kind: role === 'backward' ? 'R' : 'F', microBatch: at });
    }
    if (role === 'both' && at >= lag) {
      const kinds: SplitKind[] = isRecomputing ? ['R', 'B'] : ['B'];
      passes.push(...kinds.map(kind => ({ kind, microBatch: at - lag })));
    }
  }
  return passes;
}

/** Operations of a step that are listed at most; more cannot be drawn. */
const MOST_LISTED = 200_000;

/** Simulate a layout with all of its operations. */
export function plannedSplit(simulation: SplitSimulation, layout: SplitLayout): ISplitPlanned {
  simulation.run(layout);
  const { stepMs, microBatches, request, bytes, forwardBytes, overBytes } = simulation;
  const lanes = lanesOf(layout);
  return {
    layout,
    devices: devicesOf(layout, request.devices) ?? [],
    stepMs,
    lanes,
    operations: operationsOf(simulation, layout, lanes),
    peakBytes: lanes.map(({ role, stage }) => (role === 'forward' ? forwardBytes : bytes)[stage]!),
    overMemoryBytes: overBytes,
    sentBytes: sentBytes(layout, microBatches, request)
  };
}

/** Forward processes by stage, then backward processes by stage; or those that do both. */
function lanesOf({ family, stages }: SplitLayout): ISplitLane[] {
  const own = stages.map(({ device }, stage): ISplitLane => ({
    role: isApart(family) ? 'backward' : 'both',
    stage,
    device
  }));
  const forward = stages.flatMap(({ forward_device }, stage): ISplitLane[] =>
    typeof forward_device === 'number' ? [{ role: 'forward', stage, device: forward_device }] : []
  );
  return [...forward, ...own];
}

function operationsOf(
  simulation: SplitSimulation,
  { family, stages }: SplitLayout,
  lanes: readonly ISplitLane[]
): ISplitPlanned['operations'] {
  const { microBatches, request } = simulation;
  const lane: number[] = [];
  const kind: SplitKind[] = [];
  const microBatch: number[] = [];
  const begin: number[] = [];
  const end: number[] = [];
  const enter = (at: number, what: SplitKind, which: number, from: number, to: number): void => {
    lane.push(at);
    kind.push(what);
    microBatch.push(which);
    begin.push(from);
    end.push(to);
  };
  const shape = { family, stages: stages.length, microBatches, ahead: request.ahead };
  const isListed = 3 * stages.length * microBatches <= MOST_LISTED;
  for (const [at, { role, stage }] of lanes.entries()) {
    if (!isListed) {
      break;
    }
    const takes = { F: simulation.forward, R: simulation.recompute, B: simulation.backward };
    const ends = { F: simulation.forwardEnd, R: simulation.recomputeEnd, B: simulation.backwardEnd };
    for (const pass of laneOrder({ role, stage }, shape)) {
      const what = pass.kind;
      if (what === 'F' || what === 'R' || what === 'B') {
        const done = ends[what][stage * microBatches + pass.microBatch]!;
        enter(at, what, pass.microBatch, done - takes[what][stage]!, done);
      }
    }
    if (role !== 'forward') {
      enter(at, 'O', -1, simulation.sumBegin[stage]!, simulation.trained[stage]!);
    } else {
      const last = family === 'megafbd' ? 'O' : 'W';
      enter(at, last, -1, simulation.newBegin[stage]!, simulation.newEnd[stage]!);
    }
  }
  return { lane, kind, microBatch, begin, end };
}

/** Messages, gradient sums over replicas and new weights; not traffic between devices of one stage. */
function sentBytes(
  layout: SplitLayout,
  microBatches: number,
  { message_bytes, weight_bytes, layers }: SplitSimulation['request']
): number {
  const { family, data, stages } = layout;
  const forwards = stages.filter(({ forward_device }) => typeof forward_device === 'number').length;
  const between = stages.length - 1;
  // Activations to forward and to backward processes, and gradients; of MegaFBD also those within a stage
  // instead of the second.
  const messages =
    family === 'split'
      ? forwards - 1 + 2 * between
      : family === 'megafbd'
        ? 2 * between + stages.length
        : 2 * between;
  let layer = 0;
  let updated = 0;
  for (const stage of stages) {
    const end = layer + stage.layers;
    const share = layers.slice(layer, end).reduce((sum, each) => sum + each, 0);
    updated += typeof stage.forward_device === 'number' ? share : 0;
    layer = end;
  }
  const sums = family === 'megafbd' ? 2 * (2 * data - 1) : 2 * (data - 1);
  return (
    data * microBatches * messages * message_bytes +
    sums * weight_bytes +
    (family === 'split' ? data * updated * weight_bytes : 0)
  );
}

import type { IPipelineSteps } from '../../client/pipeline-api';
import { latencyOf, median } from '../../plan/simulation';
import { wholeStage, forwardGroups, type ILayoutShape } from './cut-layers';
import type { ISplitOperations, SplitKind } from './planned-split';
import type { IFullSplitRequest } from './split-request';

/** Groups of alike devices, and how much of the model each of them does in a ms. */
interface IGroups {
  readonly kind: number;
  readonly groups: number;
  readonly speed: number;
}

/** ms that a step takes at least, and likely. */
interface IStepGuess {
  readonly least: number;
  readonly likely: number;
}

/**
 * Guess how long the steps of a shape's layouts are, were each stage on the fastest devices that there are:
 * at least, and likely. Infinity where these cannot hold the model.
 *
 * Without a look at single stages, so that it costs little for shapes of many.
 */
export function guessStep(shape: ILayoutShape, request: IFullSplitRequest): IStepGuess {
  const { devices, layers, latency, micro_batches, message_bytes, bandwidth, state_bytes, weight_bytes } =
    request;
  const { stages, tensor, forwardTensor, counts, data } = shape;
  const wholes = devices.map((_, kind) => wholeStage(shape, 0, kind, -1, request));
  const backs = fastest(counts, tensor, stages, kind => 1 / wholes[kind]!.each);
  const rooms = fastest(counts, tensor, stages, kind => devices[kind]!.memory * tensor);
  if (backs === null || rooms === null || total(rooms) < state_bytes) {
    return { least: Infinity, likely: Infinity };
  }
  const count = micro_batches / data;
  // Whatever the stages are, a micro-batch goes forth and back through the whole model.
  const once = Math.min(...backs.map(({ kind }) => wholes[kind]!.chain));
  const sums = 2 * (data - 1) * latency;
  const cheapest = Math.min(...layers);
  const slowest = bottleneck(backs, cheapest, layers.length);
  const taken = counts.map(
    (all, kind) => all - tensor * (backs.find(each => each.kind === kind)?.groups ?? 0)
  );
  const aheads = fastest(
    taken,
    forwardTensor,
    forwardGroups(shape),
    kind => forwardTensor / devices[kind]!.forward
  );
  const chain =
    once +
    2 * (stages - 1) * (latency + message_bytes / bandwidth) +
    (2 * (1 - 1 / data) * weight_bytes) / tensor / stages / bandwidth;
  const together = aheads === null || aheads.length === 0 ? backs : pairs(backs, aheads);
  return {
    least: Math.max(count * slowest, once) + sums,
    likely: chain + sums + (count - 1) * Math.max(slowest, bottleneck(together, cheapest, layers.length))
  };
}

/** The best groups, in descending order; null where there are too few. */
function fastest(
  counts: readonly number[],
  each: number,
  groups: number,
  speed: (kind: number) => number
): IGroups[] | null {
  let rest = groups;
  const found = counts
    .map((count, kind) => ({ kind, groups: Math.floor(count / each), speed: speed(kind) }))
    .sort((a, b) => (b.speed === a.speed ? a.kind - b.kind : b.speed - a.speed))
    .map(each => {
      const taken = Math.min(rest, each.groups);
      rest -= taken;
      return { ...each, groups: taken };
    })
    .filter(each => each.groups > 0);
  return rest > 0 ? null : found;
}

/** The fastest of one beside the fastest of the other; each pair is as fast as its slower one. */
function pairs(backs: readonly IGroups[], aheads: readonly IGroups[]): IGroups[] {
  const found: IGroups[] = [];
  const left = aheads.map(each => ({ ...each }));
  for (const back of backs) {
    for (let rest = back.groups; rest > 0;) {
      const first = left.find(({ groups }) => groups > 0);
      const groups = Math.min(rest, first?.groups ?? rest);
      found.push({ ...back, groups, speed: Math.min(back.speed, first?.speed ?? Infinity) });
      rest -= groups;
      if (first !== undefined) {
        first.groups -= groups;
      }
    }
  }
  return found;
}

/** Least ms of the slowest stage, with layers cut freely, and with integer layers none below the cheapest. */
function bottleneck(groups: readonly IGroups[], cheapest: number, layers: number): number {
  let low = 1 / total(groups);
  const fits = (ms: number): boolean => {
    let sum = 0;
    for (const { groups: count, speed } of groups) {
      const each = Math.floor((ms * speed) / cheapest + 1e-9);
      if (!(each >= 1)) {
        return false;
      }
      sum += count * each;
    }
    return sum >= layers;
  };
  if (fits(low)) {
    return low;
  }
  let high = Math.max(...groups.map(({ speed }) => 1 / speed));
  for (let turn = 0; turn < 12; turn += 1) {
    const middle = (low + high) / 2;
    if (fits(middle)) {
      high = middle;
    } else {
      low = middle;
    }
  }
  return low;
}

const total = (groups: readonly IGroups[]): number =>
  groups.reduce((sum, each) => sum + each.groups * each.speed, 0);

/**
 * What a process of a measured replica did; ms, medians over steps of the mean over a step's operations: some
 * passes of each step may be slower than others, as where processes share a core. NaN where there are none.
 */
export interface IMeasuredLane {
  readonly role: 'backward' | 'both' | 'forward';
  readonly stage: number;
  readonly rank: number;
  /** Forward pass without autograd; one for backward (of `both`: the only one); backward pass; optimizer. */
  readonly forwardMs: number;
  readonly recomputeMs: number;
  readonly backwardMs: number;
  readonly optimizerMs: number;
}

/** The steps that a run measured, as the planner of splits reads them. */
export interface IMeasuredSplit {
  /** Whether forward and backward passes ran in different processes. */
  readonly isSplit: boolean;
  readonly stages: number;
  /** Whether the last stage has a forward process. */
  readonly lastForward: boolean;
  /** Of a replica. */
  readonly microBatches: number;
  /** Micro-batches that backward processes recomputed ahead of their gradients. 1 where it is no split. */
  readonly ahead: number;
  readonly replicas: number;
  /** Forward processes by stage, then backward processes by stage; or those that do both. */
  readonly lanes: readonly IMeasuredLane[];
  /** Latency, ms: lower quartile of idle processes' waits after their senders were done. 0 if none. */
  readonly latencyMs: number;
  /** Median ms of the steps, and how many there are. */
  readonly stepMs: number;
  readonly steps: number;
  /** The last step; ms from its first begin. */
  readonly operations: ISplitOperations;
  readonly operationsStep: number;
}

/**
 * Read the measured steps of a run; null where there are no passes.
 *
 * A split's lanes come as stages do: its forward processes, which do forward passes only, then its backward
 * processes, whose forward passes are those that are done again. Where each lane has backward passes, or the
 * numbers do not go together, it is an ordinary run.
 */
export function measuredSplit(steps: IPipelineSteps | null): IMeasuredSplit | null {
  if (steps === null || !steps.operations.kind.includes('B')) {
    return null;
  }
  const { operations: rows, microBatches, replicas } = steps;
  const lasts = steps.steps.map(({ step }) => step).filter(step => rows.step.includes(step));
  const operationsStep = Math.max(...lasts);
  const count = steps.stages;
  const isBackward = Array.from({ length: count }, () => false);
  rows.kind.forEach((kind, at) => {
    isBackward[rows.stage[at]!] ||= kind !== 'F' && kind !== 'O';
  });
  const forwards = isBackward.indexOf(true);
  const stages = count - forwards;
  const isSplit =
    forwards > 0 &&
    isBackward.every((is, lane) => is === lane >= forwards) &&
    (forwards === stages || forwards === stages - 1);
  const stageOf = (lane: number): number => (isSplit && lane >= forwards ? lane - forwards : lane);
  const times = Array.from({ length: count }, () => ({
    F: new StepMeans(),
    B: new StepMeans(),
    O: new StepMeans()
  }));
  // What a process keeps for its backward pass may be computed in parts: both are the backward pass.
  const parts = new Map<string, number>();
  rows.kind.forEach((kind, at) => {
    const lane = times[rows.stage[at]!]!;
    const took = rows.end[at]! - rows.begin[at]!;
    if (kind === 'F' || kind === 'O') {
      lane[kind].add(rows.step[at]!, took);
    } else {
      const key = `${rows.step[at]} ${rows.stage[at]} ${rows.chunk[at]} ${rows.microBatch[at]}`;
      parts.set(key, (parts.get(key) ?? 0) + took);
    }
  });
  for (const [key, took] of parts) {
    const [step, lane] = key.split(' ').map(Number) as [number, number];
    times[lane]!.B.add(step, took);
  }
  const lanes = times.map((lane, at): IMeasuredLane => {
    const role = !isSplit ? 'both' : at < forwards ? 'forward' : 'backward';
    const forwardMs = lane.F.median();
    return {
      role,
      stage: stageOf(at),
      rank: steps.ranks[at]!,
      forwardMs: role === 'forward' ? forwardMs : NaN,
      recomputeMs: role === 'forward' ? NaN : forwardMs,
      backwardMs: lane.B.median(),
      optimizerMs: lane.O.median()
    };
  });
  const operations = lastStep(steps, operationsStep, isSplit ? forwards : 0);
  return {
    isSplit,
    stages: isSplit ? stages : count,
    lastForward: isSplit && forwards === stages,
    microBatches,
    ahead: isSplit ? aheadOf(operations, count - 1) : 1,
    replicas,
    lanes,
    latencyMs: measuredLatency(steps, isSplit ? forwards : 0),
    stepMs: median(steps.steps.map(({ duration }) => duration)),
    steps: lasts.length,
    operations,
    operationsStep
  };
}

/** How many passes a backward process recomputed before it first went back. */
function aheadOf({ lane, kind }: ISplitOperations, of: number): number {
  const own = kind.filter((_, at) => lane[at] === of);
  return Math.max(1, own.indexOf('B'));
}

class StepMeans {
  add(step: number, took: number): void {
    const [sum, count] = this._sums.get(step) ?? [0, 0];
    this._sums.set(step, [sum + took, count + 1]);
  }

  median(): number {
    return median([...this._sums.values()].map(([sum, count]) => sum / count));
  }

  private readonly _sums = new Map<number, readonly [sum: number, count: number]>();
}

function measuredLatency({ operations: rows, stages }: IPipelineSteps, forwards: number): number {
  const ends = new Map<string, number>();
  const name = (kind: string, lane: number, at: number): string =>
    `${rows.step[at]} ${kind} ${lane} ${rows.microBatch[at]}`;
  rows.kind.forEach((kind, at) => ends.set(name(kind, rows.stage[at]!, at), rows.end[at]!));
  const gaps: number[] = [];
  let lane = -1;
  let free = -Infinity;
  let step = -1;
  // Rows come by step, lane and beginning.
  rows.kind.forEach((kind, at) => {
    if (rows.stage[at] !== lane || rows.step[at] !== step) {
      free = -Infinity;
      lane = rows.stage[at]!;
      step = rows.step[at]!;
    }
    const from =
      kind === 'F'
        ? // To a backward process from the forward process of the stage before.
          lane < forwards
          ? lane - 1
          : lane - forwards - 1
        : kind === 'B' || kind === 'I'
          ? lane + 1
          : -1;
    const sent =
      from < 0 || from >= stages || (kind === 'F' && forwards === 0 && from !== lane - 1)
        ? undefined
        : ends.get(name(kind, from, at));
    if (sent !== undefined && sent >= free) {
      gaps.push(rows.begin[at]! - sent);
    }
    free = rows.end[at]!;
  });
  return latencyOf(gaps);
}

function lastStep({ operations: rows }: IPipelineSteps, step: number, forwards: number): ISplitOperations {
  const indices = rows.step.flatMap((each, at) => (each === step ? [at] : []));
  const from = indices.reduce((least, at) => Math.min(least, rows.begin[at]!), Infinity);
  return {
    lane: indices.map(at => rows.stage[at]!),
    kind: indices.map((at): SplitKind => {
      const kind = rows.kind[at]!;
      const isRecomputing = kind === 'F' && forwards > 0 && rows.stage[at]! >= forwards;
      return isRecomputing ? 'R' : kind === 'I' || kind === 'W' ? 'B' : kind;
    }),
    microBatch: indices.map(at => rows.microBatch[at]!),
    begin: indices.map(at => rows.begin[at]! - from),
    end: indices.map(at => rows.end[at]! - from)
  };
}

import type { IPipelineSteps } from '../../client/pipeline-api';
import { quantile } from '../../plan/jitter';
import type { ISplitOperations, SplitKind } from './split-planned';

/** What a process of a measured replica did; ms, medians over steps of the mean over a step's operations: some passes of each step may be slower than others, as where processes share a core. NaN where there are none. */
export interface IMeasuredLane {
  readonly role: 'backward' | 'both' | 'forward';
  readonly stage: number;
  readonly rank: number;
  /** A forward pass without autograd, one for a backward pass (of `both`: its only one), a backward pass, and the optimizer. */
  readonly forwardMs: number;
  readonly againMs: number;
  readonly backwardMs: number;
  readonly optimizerMs: number;
  /** Time in operations of the last step. */
  readonly busyMs: number;
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
  /** ms before a message begins to arrive: the lower quartile of what an idle process waited after its sender was done. 0 where none was idle. */
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
 * A split's lanes come as stages do: its forward processes, which do forward passes only, then its backward processes, whose forward passes are those that are done again. Where each
 * lane has backward passes, or the numbers do not go together, it is an ordinary run.
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
    O: new StepMeans(),
    busy: 0
  }));
  // What a process keeps for its backward pass may be computed in parts: both are the backward pass.
  const parts = new Map<string, number>();
  rows.kind.forEach((kind, at) => {
    const lane = times[rows.stage[at]!]!;
    const took = rows.end[at]! - rows.begin[at]!;
    if (rows.step[at] === operationsStep) {
      lane.busy += took;
    }
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
      againMs: role === 'forward' ? NaN : forwardMs,
      backwardMs: lane.B.median(),
      optimizerMs: lane.O.median(),
      busyMs: lane.busy
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
    latencyMs: latencyOf(steps, isSplit ? forwards : 0),
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

/** Times by step. */
class StepMeans {
  add(step: number, took: number): void {
    const [sum, count] = this._sums.get(step) ?? [0, 0];
    this._sums.set(step, [sum + took, count + 1]);
  }

  /** The median of the steps' means; NaN without any. */
  median(): number {
    return median([...this._sums.values()].map(([sum, count]) => sum / count));
  }

  private readonly _sums = new Map<number, readonly [sum: number, count: number]>();
}

function median(values: readonly number[]): number {
  return quantile(
    [...values].sort((a, b) => a - b),
    0.5
  );
}

function latencyOf({ operations: rows, stages }: IPipelineSteps, forwards: number): number {
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
  const least = quantile(
    gaps.sort((a, b) => a - b),
    0.25
  );
  return Number.isFinite(least) ? Math.max(0, least) : 0;
}

function lastStep({ operations: rows }: IPipelineSteps, step: number, forwards: number): ISplitOperations {
  const places = rows.step.flatMap((each, at) => (each === step ? [at] : []));
  const from = places.reduce((least, at) => Math.min(least, rows.begin[at]!), Infinity);
  return {
    lane: places.map(at => rows.stage[at]!),
    kind: places.map((at): SplitKind => {
      const kind = rows.kind[at]!;
      const isAgain = kind === 'F' && forwards > 0 && rows.stage[at]! >= forwards;
      return isAgain ? 'R' : kind === 'I' || kind === 'W' ? 'B' : kind;
    }),
    microBatch: places.map(at => rows.microBatch[at]!),
    begin: places.map(at => rows.begin[at]! - from),
    end: places.map(at => rows.end[at]! - from)
  };
}

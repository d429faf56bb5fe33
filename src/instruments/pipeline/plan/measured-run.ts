import type { IPipelineSteps } from '../client/pipeline-api';
import type { PipelineTimes, PlanRequest, Plan } from '../protocol/pipeline.generated';
import { latencyOf, median } from './simulation';
import type { OperationTable, IPlanShape } from './plan-shape';
import {
  KINDS,
  operationName,
  readOperation,
  copyOf,
  virtualOf,
  PlanError,
  stageOf,
  virtualStages
} from './plan-shape';

/** Operations as they ran, as columns of one length. Times are ms by one clock for all stages. */
export interface IMeasured {
  readonly stage: ArrayLike<number>;
  /** Model chunk of the stage, counted from 0; with two copies of the model, 0 is the first. */
  readonly chunk: ArrayLike<number>;
  /** F, B (or input gradient where a W follows), I, W; O is the optimizer, without chunk and micro-batch. */
  readonly kind: ArrayLike<string>;
  readonly micro_batch: ArrayLike<number>;
  readonly begin: ArrayLike<number>;
  readonly end: ArrayLike<number>;
  /** Which step; all one step when absent. */
  readonly step?: ArrayLike<number>;
}

/** Where the rows of one step are, by operation: what is called B where a W follows is I. */
class MeasuredStep {
  constructor(
    private readonly rows: IMeasured,
    readonly places: readonly number[],
    private readonly shape: IPlanShape
  ) {
    const split = new Set<string>();
    places.forEach(at => {
      if (rows.kind[at] === 'W') {
        split.add(operationName(this.virtual(at), 1, rows.micro_batch[at]!));
      }
    });
    for (const at of places) {
      const kind = KINDS.findIndex(each => each === rows.kind[at]);
      const name = kind < 0 ? '' : operationName(this.virtual(at), kind, rows.micro_batch[at]!);
      if (name !== '') {
        this.byName.set(
          split.has(name) ? operationName(this.virtual(at), 2, rows.micro_batch[at]!) : name,
          at
        );
      }
    }
  }

  /** Row of an operation, by its name; each once. */
  readonly byName = new Map<string, number>();

  virtual(at: number): number {
    return virtualOf(this.rows.stage[at]!, this.rows.chunk[at]!, this.shape);
  }

  /** Row of the operation on another virtual stage that one waits for; undefined where there is none. */
  sender(name: string): number | undefined {
    const [, virtual, kind, microBatch] = /^(\d+)([FBI])(\d+)$/.exec(name) ?? [];
    if (virtual === undefined) {
      return undefined;
    }
    const next = Number(virtual) + (kind === 'F' ? -1 : 1);
    const [first, end] = copyOf(Number(virtual), this.shape);
    if (next < first || next >= end) {
      return undefined;
    }
    return kind === 'F'
      ? this.byName.get(`${next}F${microBatch}`)
      : (this.byName.get(`${next}B${microBatch}`) ?? this.byName.get(`${next}I${microBatch}`));
  }
}

/** Rows of each step, in the order of the steps. */
export function measuredSteps(rows: IMeasured, shape: IPlanShape): MeasuredStep[] {
  const places = new Map<number, number[]>();
  for (let at = 0; at < rows.stage.length; at += 1) {
    const step = rows.step?.[at] ?? 0;
    const known = places.get(step);
    if (known === undefined) {
      places.set(step, [at]);
    } else {
      known.push(at);
    }
  }
  return [...places].sort(([a], [b]) => a - b).map(([, each]) => new MeasuredStep(rows, each, shape));
}

/** Row of each operation of a plan in a measured step; -1 where it was not measured. */
export function matchRows(table: OperationTable, step: MeasuredStep): Int32Array {
  return Int32Array.from({ length: table.count }, (_, at) => step.byName.get(table.name(at)) ?? -1);
}

/** Stages of a plan for a run that is no pipeline, and its micro-batches a stage. */
const USUAL = { stages: 4, microBatches: 2 };

export interface IMeasuredRun {
  readonly steps: IPipelineSteps;
  readonly rows: IMeasured;
  /** With one stage where the run is no pipeline. */
  readonly shape: IPlanShape;
  readonly times: IMeasuredTimes;
}

/** A `PlanRequest` of which anything may be left to what was measured. */
export type PartialPlanRequest = Partial<Omit<PlanRequest, 'times'>> & {
  readonly times?: Partial<PipelineTimes>;
};

/**
 * Read measured steps; null where there are none.
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
 * Fill up a partial request with what was measured: the times, and of a pipeline its stages, its
 * micro-batches, and its own order as plan where these are its own. The model of a run that is no pipeline is
 * cut into equal stages. Without either a forward pass takes 1 ms.
 */
export function requestOf(request: PartialPlanRequest, measured: IMeasuredRun | null): PlanRequest {
  const pipeline = measured !== null && measured.shape.stages > 1 ? measured : null;
  const stages = request.stages ?? pipeline?.shape.stages ?? USUAL.stages;
  const count = request.micro_batches ?? pipeline?.shape.micro_batches ?? stages * USUAL.microBatches;
  const isOwn = pipeline?.shape.stages === stages && pipeline.shape.micro_batches === count;
  const times = { forward: 1, ...measured?.times.times, ...request.times };
  // Whoever changes a part means the whole, too.
  const { backward: whole, ...parts } = times;
  const isChanged = request.times?.input_gradient ?? request.times?.weight_gradient;
  const keepsWhole =
    whole !== undefined && (request.times?.backward !== undefined || isChanged === undefined);
  return {
    ...request,
    stages,
    micro_batches: count,
    times: keepsWhole ? { ...parts, backward: whole } : parts,
    ...(pipeline && isOwn && request.plan === undefined
      ? { plan: planFromMeasured(pipeline.rows, pipeline.shape) }
      : {})
  };
}

/** Times as a run's own steps say them, with how they came about. */
interface IMeasuredTimes {
  readonly times: PipelineTimes;
  readonly steps: number;
  /** Whether weight gradients were measured apart; otherwise a backward pass is shared out in halves. */
  readonly split: boolean;
  /** Messages that a receiver was idle for, which the latency was read from. */
  readonly messages: number;
}

/**
 * Read a plan's times off measured steps: medians of F, I and W of each virtual stage, of the optimizer of
 * each stage, and the spread around them.
 *
 * - `latency` is the lower quartile of the time from the end of an operation on one stage to the begin of the
 *   one that waits for it on another, where that stage was idle by then: whatever else delays a begin makes
 *   it longer, nothing makes it shorter. It holds what a message takes at its size, so bandwidth and bytes
 *   are left to whoever knows them.
 * - A stage's optimizer is shared out evenly to its virtual stages.
 * - `jitter` is 1.4826 times the median of the deviations from the medians, as shares: the standard deviation
 *   where durations are normal, and blind to a few that are far off.
 * @param rows - Several steps, best without the first. The times of all stages by one clock.
 * @throws PlanError `missing` where a virtual stage has no forward or no backward pass.
 */
export function timesFromMeasured(rows: IMeasured, shape: IPlanShape): IMeasuredTimes {
  const count = virtualStages(shape);
  const parts = shape.placement === 'two_way' ? shape.stages : count;
  const durations = Array.from({ length: 4 * parts }, (): number[] => []);
  const optimizer = Array.from({ length: shape.stages }, (): number[] => []);
  const gaps: number[] = [];
  const steps = measuredSteps(rows, shape);
  for (const step of steps) {
    const ended = lastEnds(rows, step.places);
    for (const [name, at] of step.byName) {
      const kind = name.replace(/\d/g, '');
      const virtual = step.virtual(at);
      const took = rows.end[at]! - rows.begin[at]!;
      durations[KINDS.findIndex(each => each === kind) * parts + (virtual % parts)]?.push(took);
      const sender = step.sender(name);
      if (
        sender !== undefined &&
        rows.stage[sender] !== rows.stage[at] &&
        rows.end[sender]! >= ended.get(at)!
      ) {
        gaps.push(rows.begin[at]! - rows.end[sender]!);
      }
    }
    step.places
      .filter(at => rows.kind[at] === 'O')
      .forEach(at => optimizer[rows.stage[at]!]?.push(rows.end[at]! - rows.begin[at]!));
  }
  const list = (kind: number): number[] =>
    Array.from({ length: parts }, (_, part) => median(durations[kind * parts + part]!));
  const [forward, whole, input, weight] = [list(0), list(1), list(2), list(3)] as [
    number[],
    number[],
    number[],
    number[]
  ];
  const split = input.every(Number.isFinite) && weight.every(Number.isFinite);
  const lacking = forward.findIndex((ms, part) => !Number.isFinite(split ? ms : ms + whole[part]!));
  if (lacking >= 0) {
    const kind = Number.isFinite(forward[lacking]!) ? 'B' : 'F';
    throw new PlanError(
      'missing',
      `The measured steps must have forward and backward passes of every virtual stage, got no ${operationName(lacking, kind === 'F' ? 0 : 1, 0).slice(0, -1)}. Try steps of the whole pipeline.`,
      { stage: stageOf(lacking, shape) }
    );
  }
  const deviations = durations.flatMap(each => {
    const middle = median(each);
    return middle > 0 ? each.map(ms => Math.abs(ms / middle - 1)) : [];
  });
  const half = whole.map(ms => ms / 2);
  return {
    times: {
      forward,
      // Steps of both kinds say what a whole one takes.
      ...(split && whole.every(Number.isFinite) ? { backward: whole } : {}),
      input_gradient: split ? input : half,
      weight_gradient: split ? weight : half,
      ...(optimizer.every(each => each.length > 0)
        ? {
            optimizer: Array.from(
              { length: parts },
              (_, part) => median(optimizer[stageOf(part, shape)]!) / shape.chunks
            )
          }
        : {}),
      latency: latencyOf(gaps),
      jitter: Math.min(2, 1.4826 * median(deviations))
    },
    steps: steps.length,
    split,
    messages: gaps.length
  };
}

/** Of each row: when the one before it on its stage ended; -Infinity for the first. */
function lastEnds(rows: IMeasured, indices: readonly number[]): Map<number, number> {
  const ended = new Map<number, number>();
  const free = new Map<number, number>();
  for (const at of [...indices].sort((a, b) => rows.begin[a]! - rows.begin[b]!)) {
    ended.set(at, free.get(rows.stage[at]!) ?? -Infinity);
    free.set(rows.stage[at]!, rows.end[at]!);
  }
  return ended;
}

/**
 * The order in which the operations of the last measured step began: a plan, which is right only where
 * nothing of the step is missing.
 * @param rows - Times of all stages by one clock.
 */
function planFromMeasured(rows: IMeasured, shape: IPlanShape): Plan {
  const order = Array.from({ length: shape.stages }, (): { name: string; begin: number }[] => []);
  for (const [name, at] of measuredSteps(rows, shape).at(-1)?.byName ?? []) {
    order[stageOf(readOperation(name)?.virtual ?? 0, shape)]?.push({ name, begin: rows.begin[at]! });
  }
  const { stages, chunks, micro_batches, placement } = shape;
  return {
    schedule: 'measured',
    stages,
    chunks,
    micro_batches,
    placement,
    order: order.map(each =>
      each
        .sort((a, b) => a.begin - b.begin)
        .map(({ name }) => name)
        .join(' ')
    )
  };
}

import type { Plan } from '../protocol/pipeline.generated';
import type { PathPart } from './critical-path';
import { memoryLine } from './memory';
import { KINDS } from './operation';
import type { Outcome } from './plan-all';
import type { IPlanned, ISent } from './planned';

/** A planned schedule as JSON. Times are ms from the step's begin, sizes bytes; lists are of stages where nothing else is said. */
export interface IPlannedAnswer {
  readonly schedule: string;
  readonly plan: Plan;
  readonly step_ms: number;
  readonly low_ms: number;
  readonly high_ms: number;
  readonly nominal_ms: number;
  readonly period_ms: number;
  readonly bubble: number[];
  readonly busy_ms: number[];
  readonly done_ms: number[];
  readonly peak_bytes: number[];
  readonly over_memory_bytes: number;
  readonly memory: { readonly time: number[]; readonly bytes: number[] }[];
  readonly sent_bytes: number;
  readonly links: readonly ISent[];
  readonly critical_path: readonly PathPart[];
  readonly operations: {
    readonly stage: number[];
    readonly virtual_stage: number[];
    readonly chunk: number[];
    readonly kind: string[];
    readonly micro_batch: number[];
    readonly begin: number[];
    readonly end: number[];
  };
  readonly proof: number[];
}

/** A refused schedule as JSON. */
export interface IRefusedAnswer {
  readonly schedule: string;
  readonly refused: {
    readonly code: string;
    readonly message: string;
    readonly operation: string | null;
    readonly stage: number | null;
    readonly micro_batch: number | null;
    readonly cycle: readonly string[];
  };
}

/** What the engine's job `pipeline` answers. */
export interface IPlanAnswer {
  readonly schedules: (IPlannedAnswer | IRefusedAnswer)[];
  /** Which of them has the shortest step within the memory limit; null where none is within it. */
  readonly best: number | null;
}

/** Write what was planned as JSON. */
export function planAnswer(outcomes: readonly Outcome[]): IPlanAnswer {
  const best = bestOf(outcomes);
  return {
    schedules: outcomes.map(outcome => {
      if (!('refused' in outcome)) {
        return answer(outcome);
      }
      const { code, message, operation, stage, microBatch, cycle } = outcome.refused;
      return {
        schedule: outcome.schedule,
        refused: { code, message, operation, stage, micro_batch: microBatch, cycle }
      };
    }),
    best: best === null ? null : outcomes.indexOf(best)
  };
}

/** The outcome with the shortest step of those within the memory limit; of equal ones that which holds least, then the first. */
export function bestOf(outcomes: readonly Outcome[]): IPlanned | null {
  let best: IPlanned | null = null;
  for (const outcome of outcomes) {
    if ('refused' in outcome || outcome.overMemoryBytes > 0) {
      continue;
    }
    if (
      best === null ||
      outcome.stepMs < best.stepMs ||
      (outcome.stepMs === best.stepMs && Math.max(...outcome.peakBytes) < Math.max(...best.peakBytes))
    ) {
      best = outcome;
    }
  }
  return best;
}

function answer(planned: IPlanned): IPlannedAnswer {
  const { table, plan, times } = planned;
  const { virtual, microBatch, kind, count } = table;
  return {
    schedule: planned.schedule,
    plan,
    step_ms: planned.stepMs,
    low_ms: planned.lowMs,
    high_ms: planned.highMs,
    nominal_ms: planned.nominalMs,
    period_ms: planned.periodMs,
    bubble: [...planned.bubble],
    busy_ms: [...planned.busyMs],
    done_ms: [...planned.done],
    peak_bytes: [...planned.peakBytes],
    over_memory_bytes: planned.overMemoryBytes,
    memory: Array.from({ length: plan.stages }, (_, stage) => {
      const { time, bytes } = memoryLine(table, times, stage, planned);
      return { time: [...time], bytes: [...bytes] };
    }),
    sent_bytes: planned.sentBytes,
    links: planned.links,
    critical_path: planned.criticalPath,
    operations: {
      stage: Array.from({ length: count }, (_, at) => table.stage(at)),
      virtual_stage: [...virtual],
      chunk: Array.from(virtual, each => Math.floor(each / plan.stages)),
      kind: Array.from(kind, each => KINDS[each]!),
      micro_batch: [...microBatch],
      begin: [...planned.begin],
      end: [...planned.end]
    },
    proof: [...planned.proof]
  };
}

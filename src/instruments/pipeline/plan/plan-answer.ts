import { memoryLine } from './memory';
import { KINDS } from './operation';
import type { Outcome } from './plan-all';
import type { IPlanned } from './planned';

/** What the engine's job `pipeline` answers; `protocol/README.md` says what its members are. */
export type PlanAnswer = ReturnType<typeof planAnswer>;

/** Write what was planned as JSON. */
export function planAnswer(outcomes: readonly Outcome[]) {
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

function answer(planned: IPlanned) {
  const { table, plan, times } = planned;
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
    operations: operationColumns(planned),
    proof: [...planned.proof]
  };
}

/** The operations of a simulated step as columns of one length, stage after stage in their order; times are ms from the step's begin. */
export function operationColumns({ table, plan, begin, end }: IPlanned) {
  return {
    stage: Array.from({ length: table.count }, (_, at) => table.stage(at)),
    virtual_stage: [...table.virtual],
    chunk: Array.from(table.virtual, each => Math.floor(each / plan.stages)),
    kind: Array.from(table.kind, each => KINDS[each]!),
    micro_batch: [...table.microBatch],
    begin: [...begin],
    end: [...end]
  };
}

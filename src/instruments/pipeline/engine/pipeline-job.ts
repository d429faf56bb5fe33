import { asObject } from '../../../client/rest';
import type { IEngineHost, IJobResult } from '../../../engine/jobs';
import { PIPELINE, type IPipelineSteps } from '../client/pipeline-api';
import { bestOf, type Outcome, planAll } from '../plan/plan-all';
import { measuredRun, requestOf, type PartialPlanRequest } from '../plan/measured-run';
import { memoryLine } from '../plan/memory';
import { KINDS, PlanError } from '../plan/plan-shape';
import type { IPlanned } from '../plan/check-plan';
import { measuredSplit } from '../split/plan/measured-split';
import { planSplit } from '../split/plan/plan-split';
import type { ISplitPlan, ISplitPlanned, SplitOutcome } from '../split/plan/planned-split';
import { deletedRanks, rankMap } from '../split/plan/rank-map';
import { splitRequestOf } from '../split/plan/partial-request';
import type { SplitRequest } from '../split/protocol/split.generated';

/** What the engine's job `pipeline` answers; `protocol/README.md` says what its members are. */
export type PlanAnswer = ReturnType<typeof planAnswer>;

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

/** The operations of a simulated step as columns, stage after stage; times are ms from the step's begin. */
function operationColumns({ table, plan, begin, end }: IPlanned) {
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

/**
 * Plan and simulate the schedules of a `PlanRequest`, which Python asks for: a `PlanAnswer`. With `run`, and
 * `first` and `last` of its steps, what the request leaves out is that run's own.
 */
export async function planPipeline(args: unknown, host: IEngineHost): Promise<IJobResult> {
  const { run, first, last, ...request } = asObject(args);
  const outcomes = await planAll(
    run === undefined
      ? request
      : // The whole is checked as a request by the planner.
        requestOf(
          request as PartialPlanRequest,
          measuredRun(await stepsOf(String(run), { first, last }, host))
        ),
    {
      progress: (done, total, words) => host.progress(done, total, words),
      // The engine has no clock; its timers cost nothing, and what was told is heard between them.
      breathe: () => new Promise(resolve => setTimeout(resolve))
    }
  );
  return { json: planAnswer(outcomes) };
}

/** The measured steps of a run, the newest where the range says nothing; null where there are none. */
export async function stepsOf(
  run: string,
  range: { readonly first: unknown; readonly last: unknown },
  host: IEngineHost
): Promise<IPipelineSteps | null> {
  const [first, last] = [range.first, range.last].map(each => (typeof each === 'number' ? each : undefined));
  const asked = { ...(first === undefined ? {} : { first }), ...(last === undefined ? {} : { last }) };
  return (await host.reader.asker?.(PIPELINE)?.(run, asked)) ?? null;
}

/** What the engine's job `split` answers; `protocol/README.md` says what its members are. */
export type SplitAnswer = ReturnType<typeof splitAnswer>;

export function splitAnswer({ layouts, best, verdict }: ISplitPlan) {
  const place = (planned: ISplitPlanned | null): number | null => {
    const at = layouts.findIndex(each => !('refused' in each) && each === planned);
    return at < 0 ? null : at;
  };
  return {
    layouts: layouts.map(layout => ('refused' in layout ? layout : layoutAnswer(layout))),
    best: place(best),
    verdict: {
      is_worth_it: verdict.isWorthIt,
      split: place(verdict.split),
      other: place(verdict.other),
      percent: finite(verdict.percent),
      low_percent: finite(verdict.lowPercent),
      high_percent: finite(verdict.highPercent),
      regret_percent: finite(verdict.regretPercent)
    }
  };
}

function layoutAnswer(planned: Exclude<SplitOutcome, { readonly refused: unknown }>) {
  const { layout, devices, stepMs, lanes, operations, peakBytes, overMemoryBytes, sentBytes } = planned;
  const { lane, kind, microBatch, begin, end } = operations;
  return {
    family: layout.family,
    layout,
    devices,
    step_ms: stepMs,
    lanes,
    peak_bytes: peakBytes,
    over_memory_bytes: overMemoryBytes,
    sent_bytes: sentBytes,
    operations: { lane, kind, micro_batch: microBatch, begin, end }
  };
}

const finite = (value: number): number | null => (Number.isFinite(value) ? value : null);

/** Say which process does what, for a `RankMapRequest`; see `protocol/README.md` for the answer. */
export async function mapRanks(args: unknown): Promise<IJobResult> {
  const map = rankMap(args);
  const { layout, tensor, forwardTensor, stages, replicas, lastForward, ranks, processes } = map;
  return Promise.resolve({
    json: {
      layout,
      tensor,
      forward_tensor: forwardTensor,
      stages,
      replicas,
      last_forward: lastForward,
      ranks,
      processes,
      ...(layout === 'megafbd' ? { deleted_ranks: deletedRanks(map) } : {})
    }
  });
}

/**
 * Plan the layouts of a `SplitRequest`, which Python asks for: a `SplitAnswer`. With `run`, and `first` and
 * `last` of its steps, what the request leaves out is that run's own.
 */
export async function planSplits(args: unknown, host: IEngineHost): Promise<IJobResult> {
  const { run, first, last, ...request } = asObject(args);
  const plan = await planSplit(
    run === undefined ? request : requestOfRun(request, await stepsOf(String(run), { first, last }, host)),
    {
      progress: (done, total, words) => host.progress(done, total, words),
      breathe: () => new Promise(resolve => setTimeout(resolve))
    }
  );
  return { json: splitAnswer(plan) };
}

/** What a run measured, and what is asked otherwise. The whole is checked as a request by the planner. */
function requestOfRun(partial: Partial<SplitRequest>, steps: IPipelineSteps | null): SplitRequest {
  const measured = measuredSplit(steps);
  if (measured === null && partial.devices === undefined) {
    throw new PlanError(
      'missing',
      "The run must have steps with forward and backward passes of every process, got none. Train with timeline='phases', all processes in one run, or give devices=.",
      { field: 'devices' }
    );
  }
  return splitRequestOf(partial, measured);
}

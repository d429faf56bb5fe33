import { schemaCheck } from '../../../protocol/schema-check';
import PIPELINE_SCHEMA from '#protocol/pipeline.schema.json';
import type { PipelineTimes, PlanRequest, ScheduleName, Plan } from '../protocol/pipeline.generated';
import { MADE_SCHEDULES, shapeOf, makePlan, scheduleTitle } from './make-plan';
import { PlanError } from './plan-shape';
import { type ISetting, planned, type IPlanned } from './check-plan';
import { searchPlan } from './search';
import { timesFor } from './memory';
import { matchRows, measuredSteps, type IMeasured } from './measured-run';

const check = schemaCheck({ $ref: '#/$defs/PlanRequest' }, PIPELINE_SCHEMA.$defs);

/** A request with all members but the plan filled in; the memory limit is Infinity where there is none. */
interface IFullRequest
  extends Required<Omit<PlanRequest, 'plan' | 'memory_bytes'>>, Pick<PlanRequest, 'plan'>, ISetting {
  readonly times: PipelineTimes;
  readonly seed: number;
}

/**
 * Check a request that came from Python, a file or a form, and fill in what it leaves out.
 *
 * Schedules that are left out are all that fit these numbers, and the search.
 * @throws PlanError `request` with the member at fault.
 */
function fullRequest(value: unknown): IFullRequest {
  const wrong = check(value);
  if (wrong !== null) {
    const field = wrong.path.join('.');
    throw new PlanError('request', `The request for plans is wrong: ${field || 'it'} ${wrong.words}.`, {
      field
    });
  }
  const request = value as PlanRequest;
  const { stages, micro_batches, chunks = 2, times } = request;
  const links = (times.links ?? []).findIndex(({ from, to }) => from >= stages || to >= stages);
  if (links >= 0) {
    throw new PlanError(
      'request',
      `The request for plans is wrong: a link must join two of the stages 0 to ${stages - 1}. Try other stages for the link.`,
      { field: `times.links.${links}` }
    );
  }
  const fitting = (): ScheduleName[] => [...MADE_SCHEDULES.filter(name => fits(name)), 'search'];
  const fits = (name: (typeof MADE_SCHEDULES)[number]): boolean => {
    try {
      shapeOf(name, { stages, micro_batches, chunks });
      return true;
    } catch {
      return false;
    }
  };
  return {
    schedules: request.schedules ?? fitting(),
    plan: request.plan,
    stages,
    micro_batches,
    chunks,
    times,
    memoryBytes: request.memory_bytes ?? Infinity,
    seed: request.seed ?? 1,
    effort: request.effort ?? 2000
  };
}

/** A schedule that was asked for and cannot be had, and why. */
export interface IRefused {
  readonly schedule: string;
  readonly refused: PlanError;
}

export type Outcome = IPlanned | IRefused;

export interface IPlanOptions {
  /** Ends the work: it rejects with the signal's reason. */
  readonly signal?: AbortSignal;
  /** Notified how much of all is done, and what is being done. */
  progress?(done: number, total: number, words: string): void;
  /** Waited for after each slice of work; when absent, a turn of the timers whenever 10 ms have passed. */
  breathe?(): Promise<void>;
}

/**
 * Plan and simulate all schedules of a request, its own plan first.
 *
 * The answer depends on the request alone, not on the machine: seed and effort count orders, not time.
 * Schedules that do not fit come back with the reason.
 * @param request - A `PlanRequest`, checked here.
 * @throws PlanError `request` where it is none; the signal's reason.
 */
export async function planAll(request: unknown, options: IPlanOptions = {}): Promise<Outcome[]> {
  const full = fullRequest(request);
  const jobs = [
    ...(full.plan === undefined
      ? []
      : [{ schedule: full.plan.schedule, work: () => planned(full.plan!, full) }]),
    ...full.schedules.map(schedule => ({
      schedule,
      work: function* (): Generator<void, IPlanned> {
        if (schedule === 'search') {
          return yield* planned(yield* searchPlan(full), full);
        }
        const shape = shapeOf(schedule, full);
        return yield* planned(makePlan(schedule, shape, timesFor(full.times, shape)), full);
      }
    }))
  ];
  const outcomes: Outcome[] = [];
  for (const { schedule, work } of jobs) {
    options.progress?.(outcomes.length, jobs.length, scheduleTitle(schedule));
    try {
      outcomes.push(await inSlices(work(), options));
    } catch (error) {
      if (!(error instanceof PlanError)) {
        throw error;
      }
      outcomes.push({ schedule, refused: error });
    }
  }
  options.progress?.(jobs.length, jobs.length, '');
  return outcomes;
}

/** Simulate one plan at once, without slices. */
export function simulatePlan(
  plan: Plan,
  times: PipelineTimes,
  { memoryBytes = Infinity, seed = 1 }: { memoryBytes?: number; seed?: number } = {}
): IPlanned {
  const work = planned(plan, { times, memoryBytes, seed });
  for (;;) {
    const step = work.next();
    if (step.done === true) {
      return step.value;
    }
  }
}

/** Do work slice by slice, so that others have their turn between. */
export async function inSlices<T>(work: Generator<void, T>, { signal, breathe }: IPlanOptions): Promise<T> {
  let began = performance.now();
  for (;;) {
    signal?.throwIfAborted();
    const step = work.next();
    if (step.done === true) {
      return step.value;
    }
    if (breathe !== undefined) {
      await breathe();
    } else if (performance.now() - began > 10) {
      // A page's timers take several ms each, so that there must not be one for every slice.
      await new Promise<void>(resolve => setTimeout(resolve));
      began = performance.now();
    }
  }
}

/** Share up to which two times are equal: sums of the same durations, rounded in another order. */
const EQUAL = 1e-9;

/** The most that a stage of a plan holds. */
const most = ({ peakBytes }: IPlanned): number => peakBytes.reduce((peak, bytes) => Math.max(peak, bytes), 0);

const apart = (a: number, b: number): number => (Math.abs(a - b) <= EQUAL * Math.max(a, b) ? 0 : a - b);

/**
 * Which of two plans comes first, as a function to sort by: that with the shorter step, of equals that with
 * the shorter steady period, of equals that with less memory.
 */
export const ranked = (a: IPlanned, b: IPlanned): number =>
  apart(a.stepMs, b.stepMs) || apart(a.periodMs, b.periodMs) || most(a) - most(b);

/** The first by rank of the outcomes within the memory limit. */
export function bestOf(outcomes: readonly Outcome[]): IPlanned | null {
  let best: IPlanned | null = null;
  for (const outcome of outcomes) {
    if (!('refused' in outcome) && outcome.overMemoryBytes === 0) {
      best = best === null || ranked(outcome, best) < 0 ? outcome : best;
    }
  }
  return best;
}

/** The next by rank of plans whose step is as long as that of the best; null where none is. */
export function runnerUp(best: IPlanned, others: readonly IPlanned[]): IPlanned | null {
  const tied = others.filter(
    each => each.overMemoryBytes === 0 && apart(each.stepMs, best.stepMs) === 0 && ranked(best, each) < 0
  );
  return tied.sort(ranked)[0] ?? null;
}

interface IVerdict {
  readonly change: 'switch' | 'keep';
  readonly schedule: string;
  /** By how much the other one's step is longer than the current one's, %; negative where it is shorter. */
  readonly percent: number;
  /** Half of the 95 % interval of `percent`, from the jitter of both. */
  readonly plusMinus: number;
  /** By how much the other one's fullest stage holds more. */
  readonly memoryBytes: number;
}

/**
 * Compare the best schedule with the one that runs.
 *
 * It says `switch` where the step is shorter by more than chance: by more than the half interval of the
 * difference, and by at least 0.5 %.
 */
export function verdict(best: IPlanned, current: IPlanned): IVerdict {
  const share = 100 / current.stepMs;
  const half = ({ lowMs, highMs }: IPlanned): number => (highMs - lowMs) / 2;
  const percent = (best.stepMs - current.stepMs) * share;
  const plusMinus = Math.sqrt(half(best) ** 2 + half(current) ** 2) * share;
  const memoryBytes = most(best) - most(current);
  const switches =
    best.schedule !== current.schedule && best.overMemoryBytes === 0 && percent < -Math.max(0.5, plusMinus);
  return {
    change: switches ? 'switch' : 'keep',
    schedule: switches ? best.schedule : current.schedule,
    percent,
    plusMinus,
    memoryBytes
  };
}

/** Why a stage ended later, or sooner (negative), than planned. ms; `laterMs` is the sum of the three. */
export interface IStageDelay {
  readonly stage: number;
  /** End of its last operation, from the step's first begin on. */
  readonly plannedMs: number;
  readonly measuredMs: number;
  readonly laterMs: number;
  /** Its own operations took longer. */
  readonly computeMs: number;
  /** It waited longer for operations of other stages to end. */
  readonly waitMs: number;
  /** Extra wait after what it waited for had ended: messages, and host work between operations. */
  readonly messageMs: number;
  /** What weighs most; none within 1 % of the step. */
  readonly reason: 'compute' | 'wait' | 'message' | 'none';
  /** The stage that it waited for most beyond the plan; null where it did not. */
  readonly waitedFor: number | null;
  /** Operations of the plan that were not measured. */
  readonly missing: number;
}

/** A measured step laid over a planned one. */
export interface IComparison {
  readonly stages: readonly IStageDelay[];
  /** Of each operation of the plan: its row among the measured; -1 where there is none. */
  readonly rows: Int32Array;
  /** ms by the measured clock at which the step began: subtract it to lay the two over each other. */
  readonly beginMs: number;
  /** Length of the two, without optimizers. */
  readonly plannedMs: number;
  readonly measuredMs: number;
}

/**
 * Say where a measured step went another way than the plan.
 *
 * A stage's end is the sum of its operations and of what it was idle before each; each idle stretch up to the
 * end of the operation that was waited for is a wait, the rest a message.
 * @throws PlanError `missing` where nothing of the plan was measured.
 */
export function compare(predicted: IPlanned, measured: IMeasured): IComparison {
  const { table, plan, begin, end, nominalMs } = predicted;
  const step = measuredSteps(measured, plan).at(-1);
  const rows = step === undefined ? new Int32Array(table.count).fill(-1) : matchRows(table, step);
  const known = rows.filter(row => row >= 0);
  if (known.length === 0) {
    throw new PlanError(
      'missing',
      'The measured operations must be of the same stages, chunks and micro-batches as the plan, got none of the plan. Try the plan that was run.'
    );
  }
  const beginMs = known.reduce((first, row) => Math.min(first, measured.begin[row]!), Infinity);
  const planned = {
    begin: (at: number): number => begin[at]!,
    end: (at: number): number => end[at]!
  };
  const actual = {
    begin: (at: number): number => measured.begin[rows[at]!]! - beginMs,
    end: (at: number): number => measured.end[rows[at]!]! - beginMs
  };
  const stages = Array.from({ length: plan.stages }, (_, stage): IStageDelay => {
    const all = Array.from(
      { length: table.starts[stage + 1]! - table.starts[stage]! },
      (_, place) => table.starts[stage]! + place
    );
    const there = all.filter(at => rows[at]! >= 0);
    const inOrder = [...there].sort((a, b) => measured.begin[rows[a]!]! - measured.begin[rows[b]!]! || a - b);
    const was = account(inOrder, actual, at => table.waits[at]! >= 0 && rows[table.waits[at]!]! >= 0);
    const would = account(there, planned, at => table.waits[at]! >= 0);
    const [computeMs, waitMs, messageMs] = [0, 1, 2].map(part => was.parts[part]! - would.parts[part]!) as [
      number,
      number,
      number
    ];
    const parts = { compute: computeMs, wait: waitMs, message: messageMs };
    const laterMs = was.end - would.end;
    const names = ['compute', 'wait', 'message'] as const;
    const most = names.reduce((a, b) =>
      parts[b] * Math.sign(laterMs) > parts[a] * Math.sign(laterMs) ? b : a
    );
    const extra = Array.from(was.waits, (ms, other) => ms - would.waits[other]!);
    const longest = extra.reduce((a, ms, other) => (ms > extra[a]! ? other : a), 0);
    return {
      stage,
      plannedMs: would.end,
      measuredMs: was.end,
      laterMs,
      computeMs,
      waitMs,
      messageMs,
      reason: Math.abs(laterMs) <= 0.01 * nominalMs ? 'none' : most,
      waitedFor: extra[longest]! > 0 ? longest : null,
      missing: all.length - there.length
    };
  });
  return {
    stages,
    rows,
    beginMs,
    plannedMs: Math.max(...stages.map(each => each.plannedMs)),
    measuredMs: Math.max(...stages.map(each => each.measuredMs))
  };

  /** Where a stage's time went: in operations, waiting for others to end, waiting after that. */
  function account(
    operations: readonly number[],
    when: { begin(at: number): number; end(at: number): number },
    waits: (at: number) => boolean
  ): { parts: [number, number, number]; end: number; waits: Float64Array } {
    const parts: [number, number, number] = [0, 0, 0];
    const forStage = new Float64Array(plan.stages);
    let free = 0;
    for (const at of operations) {
      const idle = when.begin(at) - free;
      const sender = table.waits[at]!;
      const wait = waits(at) ? Math.max(0, Math.min(when.end(sender) - free, idle)) : 0;
      parts[0] += when.end(at) - when.begin(at);
      parts[1] += wait;
      parts[2] += idle - wait;
      if (wait > 0) {
        forStage[table.stage(sender)]! += wait;
      }
      free = when.end(at);
    }
    return { parts, end: free, waits: forStage };
  }
}

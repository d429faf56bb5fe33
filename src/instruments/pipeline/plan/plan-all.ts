import { schemaCheck } from '../../../protocol/schema-check';
import PIPELINE_SCHEMA from '#protocol/pipeline.schema.json';
import type { PipelineTimes, PlanRequest, ScheduleName, Plan } from '../protocol/pipeline.generated';
import { MADE_SCHEDULES, shapeOf, makePlan, scheduleTitle } from './make-plan';
import { PlanError } from './plan-shape';
import { type ISetting, planned, type IPlanned } from './planned';
import { searchPlan } from './search';
import { timesFor } from './stage-times';

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

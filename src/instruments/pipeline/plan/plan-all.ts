import type { Plan, PipelineTimes } from '../protocol/pipeline.generated';
import { makePlan, scheduleTitle, shapeOf } from './make-plan';
import { PlanError } from './plan-error';
import { fullRequest } from './plan-request';
import { planned, type IPlanned } from './planned';
import { searchPlan } from './search';
import { timesFor } from './stage-times';

/** A schedule that was asked for and cannot be had, and why. */
export interface IRefused {
  readonly schedule: string;
  readonly refused: PlanError;
}

/** What came of one schedule. */
export type Outcome = IPlanned | IRefused;

/** How long work is done. */
export interface IPlanOptions {
  /** Ends the work: it rejects with the signal's reason. */
  readonly signal?: AbortSignal;
  /** Told how much of all is done, and what is being done. */
  progress?(done: number, total: number, words: string): void;
  /** Waited for after each slice of work; when absent, a turn of the timers whenever 10 ms have passed. */
  breathe?(): Promise<void>;
}

/**
 * Plan and simulate all schedules of a request, its own plan first.
 *
 * The answer depends on the request alone, not on the machine: seed and effort count orders, not time. Schedules that do not fit come back with the reason.
 *
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

import { PIPELINE, type IPipelineSteps } from '../client/pipeline-api';
import { asObject } from '../../../client/rest';
import { measuredRun, requestOf, type PlanWish } from '../plan/measured-run';
import { planAll } from '../plan/plan-all';
import { planAnswer } from '../plan/plan-answer';
import type { IEngineHost, IJobResult } from '../../../engine/jobs';

/**
 * Plan and simulate the schedules of a `PlanRequest`, which Python asks for: a `PlanAnswer`. With `run`, and `first` and `last` of its steps, what the request leaves out is
 * that run's own.
 */
export async function planPipeline(args: unknown, host: IEngineHost): Promise<IJobResult> {
  const { run, first, last, ...request } = asObject(args);
  const outcomes = await planAll(
    run === undefined
      ? request
      : // The whole is checked as a request by the planner.
        requestOf(request as PlanWish, measuredRun(await stepsOf(String(run), { first, last }, host))),
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
  return (await host.reader(run).asker?.(PIPELINE)?.(run, asked)) ?? null;
}

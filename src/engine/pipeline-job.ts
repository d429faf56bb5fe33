import { planAll } from '../plan/plan-all';
import { planAnswer } from '../plan/plan-answer';
import type { IEngineHost, IJobResult } from './jobs';

/** Plan and simulate the schedules of a `PlanRequest`, which Python asks for: a `PlanAnswer`. */
export async function planPipeline(args: unknown, host: IEngineHost): Promise<IJobResult> {
  const outcomes = await planAll(args, {
    progress: (done, total, words) => host.progress(done, total, words),
    // The engine has no clock; its timers cost nothing, and what was told is heard between them.
    breathe: () => new Promise(resolve => setTimeout(resolve))
  });
  return { json: planAnswer(outcomes) };
}

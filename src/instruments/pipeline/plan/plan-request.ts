import {
  PIPELINE_SCHEMA,
  type PipelineTimes,
  type PlanRequest,
  type ScheduleName
} from '../protocol/pipeline.generated';
import { schemaCheck } from '../../../protocol/schema-check';
import { MADE_SCHEDULES, shapeOf } from './make-plan';
import { PlanError } from './plan-error';
import type { ISetting } from './planned';

const check = schemaCheck({ $ref: '#/$defs/PlanRequest' }, PIPELINE_SCHEMA.$defs);

/** A request with no member left out but the plan, and with a limit of memory that is Infinity where there is none. */
export interface IFullRequest
  extends Required<Omit<PlanRequest, 'plan' | 'memory_bytes'>>, Pick<PlanRequest, 'plan'>, ISetting {
  readonly times: PipelineTimes;
  readonly seed: number;
}

/**
 * Check a request that came from Python, a file or a form, and fill in what it leaves out.
 *
 * Schedules that are left out are all that fit these numbers, and the search.
 *
 * @throws PlanError `request` with the member at fault.
 */
export function fullRequest(value: unknown): IFullRequest {
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

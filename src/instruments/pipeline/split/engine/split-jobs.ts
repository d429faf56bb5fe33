import type { IPipelineSteps } from '../../client/pipeline-api';
import { asObject } from '../../../../client/rest';
import { PlanError } from '../../plan/plan-error';
import { measuredSplit } from '../plan/measured-split';
import { planSplit } from '../plan/plan-split';
import { deletedRanks, rankMap } from '../plan/rank-map';
import { splitAnswer } from '../plan/split-answer';
import { splitRequestOf } from '../plan/split-wish';
import type { SplitRequest } from '../protocol/split.generated';
import type { IEngineHost, IJobResult } from '../../../../engine/jobs';
import { stepsOf } from '../../engine/pipeline-job';

/** Say which process does what, for a `RankMapRequest`; `protocol/README.md` says what the answer's members are. */
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
 * Plan the layouts of a `SplitRequest`, which Python asks for: a `SplitAnswer`. With `run`, and `first` and `last` of its steps, what the request leaves out is that run's own.
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
function requestOfRun(wish: Partial<SplitRequest>, steps: IPipelineSteps | null): SplitRequest {
  const measured = measuredSplit(steps);
  if (measured === null && wish.devices === undefined) {
    throw new PlanError(
      'missing',
      "The run must have steps with forward and backward passes of every process, got none. Train with timeline='phases', all processes in one run, or give devices=.",
      { field: 'devices' }
    );
  }
  return splitRequestOf(wish, measured);
}

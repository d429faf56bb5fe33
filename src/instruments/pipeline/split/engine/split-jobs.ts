import { asObject } from '../../../../client/rest';
import type { IEngineHost, IJobResult } from '../../../../engine/jobs';
import type { IPipelineSteps } from '../../client/pipeline-api';
import { stepsOf } from '../../engine/pipeline-job';
import { PlanError } from '../../plan/plan-shape';
import { measuredSplit } from '../plan/measured-split';
import { planSplit } from '../plan/plan-split';
import type { ISplitPlan, ISplitPlanned, SplitOutcome } from '../plan/planned-split';
import { deletedRanks, rankMap } from '../plan/rank-map';
import { splitRequestOf } from '../plan/partial-request';
import type { SplitRequest } from '../protocol/split.generated';

/** What the engine's job `split` answers; `protocol/README.md` says what its members are. */
export type SplitAnswer = ReturnType<typeof splitAnswer>;

export function splitAnswer({ layouts, best, verdict }: ISplitPlan) {
  const place = (planned: ISplitPlanned | null): number | null => {
    const at = layouts.findIndex(each => !('refused' in each) && each === planned);
    return at < 0 ? null : at;
  };
  return {
    layouts: layouts.map(layout => ('refused' in layout ? layout : answer(layout))),
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

function answer(planned: Exclude<SplitOutcome, { readonly refused: unknown }>) {
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

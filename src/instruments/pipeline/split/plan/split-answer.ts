import type { ISplitPlan, ISplitPlanned, SplitOutcome } from './split-planned';

/** What the engine's job `split` answers; `protocol/README.md` says what its members are. */
export type SplitAnswer = ReturnType<typeof splitAnswer>;

/** Write what was planned as JSON. */
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

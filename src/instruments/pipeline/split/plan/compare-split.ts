import type { IMeasuredSplit } from './measured-split';
import type { ISplitLane, ISplitPlanned } from './split-planned';

/** How long a process is busy in a step, planned and measured, ms. */
export interface ISplitLaneDelay extends ISplitLane {
  readonly plannedMs: number;
  /** NaN where no such process was measured. */
  readonly measuredMs: number;
}

/** A planned step beside the measured one. */
export interface ISplitComparison {
  readonly plannedMs: number;
  readonly measuredMs: number;
  /** By how much the measured step is longer, %. */
  readonly percent: number;
  readonly lanes: readonly ISplitLaneDelay[];
}

/** Compare a planned step with what a run measured, process by process. */
export function compareSplit(planned: ISplitPlanned, measured: IMeasuredSplit): ISplitComparison {
  const { lane, begin, end } = planned.operations;
  const busy = new Float64Array(planned.lanes.length);
  lane.forEach((at, row) => (busy[at]! += end[row]! - begin[row]!));
  return {
    plannedMs: planned.stepMs,
    measuredMs: measured.stepMs,
    percent: planned.stepMs > 0 ? (measured.stepMs / planned.stepMs - 1) * 100 : NaN,
    lanes: planned.lanes.map((each, at) => ({
      ...each,
      plannedMs: busy[at]!,
      measuredMs:
        measured.lanes.find(({ role, stage }) => role === each.role && stage === each.stage)?.busyMs ?? NaN
    }))
  };
}

import type { ScheduleName } from '../protocol/pipeline.generated';
import { matchRows, measuredSteps, type IMeasured } from './measured-run';
import type { IPlanned } from './planned';
import { PlanError } from './plan-shape';

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
  const most = ({ peakBytes }: IPlanned): number =>
    peakBytes.reduce((peak, bytes) => Math.max(peak, bytes), 0);
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
  /** Of two stages that are late, the one whose own compute is: where to look first. Null where none is. */
  readonly cause: number | null;
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
  const slowest = stages.reduce((a, b) => (b.computeMs > a.computeMs ? b : a));
  return {
    stages,
    rows,
    beginMs,
    plannedMs: Math.max(...stages.map(each => each.plannedMs)),
    measuredMs: Math.max(...stages.map(each => each.measuredMs)),
    cause: slowest.computeMs > 0.01 * nominalMs ? slowest.stage : null
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

/** Uniform times of one micro-batch on one stage, all its chunks together; nothing is lost between stages. */
interface IUniformTimes {
  readonly stages: number;
  readonly chunks: number;
  /** F, I and W in ms; a whole backward pass B is I + W. */
  readonly forward: number;
  readonly input: number;
  readonly weight: number;
}

/**
 * The time (ms) that a stage is idle between its begin of a step and the time when it can begin the next one,
 * as the authors of a schedule give it; null where they do not.
 *
 * All assume messages that take no time, and as many micro-batches as the schedule needs to fill the
 * pipeline; null as well where an author's assumption about F, I and W does not hold.
 *
 * - GPipe, 1F1B: (P-1)(F+B). Huang et al. 2019; Narayanan et al. 2021, "Efficient Large-Scale Language Model
 *   Training on GPU Clusters Using Megatron-LM", section 2.2.1.
 * - Interleaved 1F1B, depth-first: (P-1)(F+B)/V. Narayanan et al. 2021, section 2.2.2.
 * - Breadth-first, and MegaDPP, which prefers the same order: (P-1)(F+B)/V. Lamy-Poirier 2022, "Breadth-First
 *   Pipeline Parallelism", section 4.1.
 * - ZB-H1: (P-1)(F+I-W), ZB-H2: (P-1)(F+I-2W), where W is at most F and I. Qi et al. 2023, "Zero Bubble
 *   Pipeline Parallelism", table 1.
 * - ZB-V: 0 where F = I = W. Qi et al. 2024, "Pipeline Parallelism with Controllable Memory", section 4.
 * - DualPipe: (P/2-1)(F&B + B - 3W), F&B being a forward and a backward pass that overlap and give on what
 *   they have when both are done. DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", table 2. It holds where F
 *   = I and W is at most I. One after the other, as plans run them, the bubble is smaller.
 * - DualPipeV: the same of 2P virtual stages on P stages: (P-1)(F&B + B - 3W)/2. README of the DualPipe
 *   repository.
 */
export function closedFormBubble(
  schedule: ScheduleName,
  { stages, chunks, forward, input, weight }: IUniformTimes
): number | null {
  const backward = input + weight;
  const others = stages - 1;
  const shorter = Math.min(forward, input);
  // F&B + B - 3W.
  const overlap = forward === input && weight <= input ? forward + backward + backward - 3 * weight : null;
  switch (schedule) {
    case 'gpipe':
    case '1f1b':
      return others * (forward + backward);
    case 'interleaved_1f1b':
    case 'depth_first':
    case 'breadth_first':
    case 'megadpp':
      return (others * (forward + backward)) / chunks;
    case 'zb_h1':
      return weight <= shorter ? others * (forward + input - weight) : null;
    case 'zb_h2':
      return weight <= shorter ? others * (forward + input - 2 * weight) : null;
    case 'zb_v':
      return forward === input && input === weight ? 0 : null;
    case 'dualpipe':
      return overlap === null ? null : (stages / 2 - 1) * overlap;
    case 'dualpipev':
      return overlap === null ? null : (others * overlap) / 2;
    case 'search':
      return null;
  }
}

import type { Plan, PipelineTimes } from '../protocol/pipeline.generated';
import { checkPlan, findCycle } from './check-plan';
import { spreadOf, type ITypical } from './jitter';
import { overLimit, peakMemory } from './memory';
import type { ILink, OperationTable } from './operation';
import { Simulation } from './simulation';
import { timesFor, type IStageTimes } from './stage-times';

/** A stretch of the critical path: what the step's length consists of. */
type PathPart =
  | {
      readonly what: 'operation';
      readonly operation: string;
      readonly stage: number;
      readonly begin: number;
      readonly end: number;
    }
  /** From the end of the operation that sends to the arrival, with the wait for messages before it. */
  | {
      readonly what: 'message';
      readonly operation: string;
      readonly from: number;
      readonly to: number;
      readonly begin: number;
      readonly end: number;
    }
  | { readonly what: 'optimizer'; readonly stage: number; readonly begin: number; readonly end: number };

/**
 * What the step waits for, from its begin to its end without a gap: shortening anything else does not shorten
 * the step.
 *
 * Walks back from the stage that is done last: from each operation to the one before it on its stage, where
 * the stage was busy until then, otherwise along the message that it waited for. Where both ended at the same
 * time it stays on the stage. A message's `operation` is the one that sends it.
 * @param simulation - After `run`, with its order unchanged since the plan was checked.
 */
function criticalPath({ table, begin, end, arrival, free, optimizer }: Simulation): PathPart[] {
  const path: PathPart[] = [];
  const last = free.reduce((latest, time, stage) => (time > free[latest]! ? stage : latest), 0);
  let at = table.starts[last + 1]! - 1;
  if (optimizer[last]! > 0) {
    path.push({ what: 'optimizer', stage: last, begin: end[at]!, end: free[last]! });
  }
  for (;;) {
    const stage = table.stage(at);
    path.push({ what: 'operation', operation: table.name(at), stage, begin: begin[at]!, end: end[at]! });
    const before = at > table.starts[stage]! ? at - 1 : -1;
    const busy = before >= 0 ? end[before]! : 0;
    const sender = table.waits[at]!;
    if (begin[at]! <= busy || sender < 0) {
      if (before < 0) {
        return path.reverse();
      }
      at = before;
      continue;
    }
    if (arrival[at]! > end[sender]!) {
      path.push({
        what: 'message',
        operation: table.name(sender),
        from: table.stage(sender),
        to: stage,
        begin: end[sender]!,
        end: arrival[at]!
      });
    }
    at = sender;
  }
}

/** What is sent one way between two stages in a step. */
export interface ISent extends ILink {
  readonly messages: number;
  readonly bytes: number;
}

/** A plan with what its step looks like. */
export interface IPlanned {
  /** Name of the schedule, or what somebody calls an order of their own. */
  readonly schedule: string;
  readonly plan: Plan;
  /** The operations as columns, stage after stage in their order. */
  readonly table: OperationTable;
  readonly times: IStageTimes;
  /** ms from the step's begin, of each operation of the table. */
  readonly begin: Float64Array;
  readonly end: Float64Array;
  /** When each stage is done, with its optimizer. */
  readonly done: Float64Array;
  /** Length of that step: without jitter. */
  readonly nominalMs: number;
  /** Mean length of a step with its jitter, and what 95 % lie between; all nominal without jitter. */
  readonly stepMs: number;
  readonly lowMs: number;
  readonly highMs: number;
  /** When things happen on average over steps with their jitter; absent without jitter. */
  readonly typical?: ITypical;
  /** The longest that a stage is busy: the period of steps if stages do not wait at a step's end. */
  readonly periodMs: number;
  /** Of each stage: ms of operations and optimizer, and the share of the nominal step in which it is idle. */
  readonly busyMs: Float64Array;
  readonly bubble: Float64Array;
  /** The most that each stage holds, weights and activations. */
  readonly peakBytes: Float64Array;
  /** By how much the stage that exceeds the memory limit most does so; 0 where none does. */
  readonly overMemoryBytes: number;
  readonly links: readonly ISent[];
  readonly sentBytes: number;
  readonly criticalPath: readonly PathPart[];
  /** Proof that the plan does not deadlock: its operations, each after all that it waits for. */
  readonly proof: Int32Array;
}

export interface ISetting {
  readonly times: PipelineTimes;
  /** Bytes that a stage may hold; Infinity where there is no limit. */
  readonly memoryBytes: number;
  readonly seed: number;
}

/**
 * Simulate a plan. Yields between slices of work.
 * @throws PlanError where the plan is wrong.
 */
export function* planned(plan: Plan, { times: all, memoryBytes, seed }: ISetting): Generator<void, IPlanned> {
  const table = checkPlan(plan);
  const times = timesFor(all, plan);
  yield;
  const simulation = new Simulation(table, times);
  const spread = times.jitter > 0 ? yield* spreadOf(simulation, seed) : null;
  const nominalMs = simulation.run();
  const { begin, end, free: done } = simulation;
  const busyMs = simulation.optimizer.slice();
  const messages = new Int32Array(table.links.length);
  const proof: number[] = [];
  findCycle(table, proof);
  for (let stage = 0; stage < plan.stages; stage += 1) {
    for (let at = table.starts[stage]!; at < table.starts[stage + 1]!; at += 1) {
      busyMs[stage]! += simulation.durations[at]!;
      if (table.route[at]! >= 0) {
        messages[table.route[at]!]! += 1;
      }
    }
  }
  const peakBytes = peakMemory(table, times);
  const links = table.links.map((link, at) => ({
    ...link,
    messages: messages[at]!,
    bytes: messages[at]! * times.messageBytes
  }));
  return {
    schedule: plan.schedule,
    plan,
    table,
    times,
    begin,
    end,
    done,
    nominalMs,
    stepMs: spread?.mean ?? nominalMs,
    lowMs: spread?.low ?? nominalMs,
    highMs: spread?.high ?? nominalMs,
    ...(spread ? { typical: spread.typical } : {}),
    periodMs: simulation.periodMs,
    busyMs,
    // What is lost to rounding is no idle time.
    bubble: busyMs.map(busy => (nominalMs > 0 ? Math.max(0, 1 - busy / nominalMs) : 0)),
    peakBytes,
    overMemoryBytes: peakBytes.reduce((most, peak) => Math.max(most, overLimit(peak, memoryBytes)), 0),
    links,
    sentBytes: links.reduce((sum, { bytes }) => sum + bytes, 0),
    criticalPath: criticalPath(simulation),
    proof: Int32Array.from(proof)
  };
}

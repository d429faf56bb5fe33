import type { Plan, PipelineTimes } from '../protocol/pipeline.generated';
import {
  BACKWARD,
  FORWARD,
  INPUT_GRADIENT,
  operationName,
  readOperation,
  WEIGHT_GRADIENT,
  OperationTable,
  PlanError,
  checkShape,
  copyOf,
  passes,
  stageOf,
  virtualStages,
  type ILink
} from './plan-shape';
import { spreadOf, type ITypical, Simulation } from './simulation';
import { overLimit, peakMemory, timesFor, type IStageTimes } from './memory';

/**
 * Look for operations that wait for one another in a circle.
 *
 * Kahn's algorithm over two kinds of edges: the operation before on the same stage, and the one whose message
 * is waited for.
 * @param proof - Filled with an order of operations in which each comes after all that it waits for.
 * @returns null where every operation can run; otherwise one circle, from the lowest stage on: each operation
 *   waits for the one after it, or stands behind it on its stage, and the last so for the first.
 */
export function findCycle(table: OperationTable, proof: number[] = []): number[] | null {
  const { starts, waits, feeds, shape } = table;
  const next = starts.slice(0, shape.stages);
  const done = new Uint8Array(table.count);
  const work = Array.from(next, (_, stage) => shape.stages - 1 - stage);
  while (work.length > 0) {
    const stage = work.pop()!;
    for (let at = next[stage]!; at < starts[stage + 1]!; at = ++next[stage]!) {
      if (waits[at]! >= 0 && done[waits[at]!] === 0) {
        break;
      }
      done[at] = 1;
      proof.push(at);
      const fed = feeds[at]!;
      const other = fed < 0 ? stage : table.stage(fed);
      if (other !== stage && next[other] === fed) {
        work.push(other);
      }
    }
  }
  const stuck = next.findIndex((at, stage) => at < starts[stage + 1]!);
  if (stuck < 0) {
    return null;
  }
  // Each stuck stage waits for an operation of a stuck stage: following them ends in a circle.
  const path: number[] = [];
  const seen = new Map<number, number>();
  for (let stage = stuck; ;) {
    const from = seen.get(stage);
    if (from !== undefined) {
      const circle = path.slice(from);
      const lowest = circle.reduce(
        (least, at, index) => (table.stage(at) < table.stage(circle[least]!) ? index : least),
        0
      );
      return [...circle.slice(lowest), ...circle.slice(0, lowest)].flatMap((at, index, all) => {
        const sender = waits[at]!;
        return sender === all[(index + 1) % all.length] ? [at] : [at, sender];
      });
    }
    seen.set(stage, path.length);
    path.push(next[stage]!);
    stage = table.stage(waits[next[stage]!]!);
  }
}

/**
 * Check a plan, and return its operations as columns with what each waits for.
 *
 * A plan that comes back can be run to its end: `proof` of the table holds an order in which every operation
 * comes after those that it waits for.
 * @throws PlanError with the first thing that is wrong: `shape`; then, in the order of the stages, `unknown`,
 *   `misplaced` and `doubled`; then `missing`, `order` and `cycle`.
 */
export function checkPlan(plan: Plan): OperationTable {
  const { stages, order, micro_batches } = plan;
  checkShape(plan);
  if (order.length !== stages) {
    throw new PlanError(
      'shape',
      `A plan of ${stages} stages must have as many lists of operations, got ${order.length}.`
    );
  }
  const words = order.map(text => (text === '' ? [] : text.split(' ')));
  const table = new OperationTable(
    plan,
    words.map(each => each.length)
  );
  let at = 0;
  words.forEach((each, stage) => {
    for (const word of each) {
      enter(table, at++, word, stage, plan);
    }
  });
  for (let virtual = 0; virtual < virtualStages(plan); virtual += 1) {
    for (let microBatch = 0; microBatch < micro_batches; microBatch += 1) {
      if (passes(virtual, microBatch, plan)) {
        complete(table, virtual, microBatch);
      }
    }
  }
  table.connect();
  const cycle = findCycle(table);
  if (cycle !== null) {
    const names = cycle.map(operation => table.name(operation));
    const circle = cycle.map((at, index) => {
      const next = cycle[(index + 1) % cycle.length]!;
      const name = table.name(next);
      return table.waits[at] === next
        ? `waits for ${name}`
        : `stands behind ${name} on stage ${table.stage(next)}`;
    });
    throw new PlanError(
      'cycle',
      `Operations must not wait for one another in a circle: ${names[0]} ${circle.join(', which ')}. Try another order on one of these stages.`,
      { ...table.details(cycle[0]!), cycle: names }
    );
  }
  return table;
}

function enter(table: OperationTable, at: number, word: string, stage: number, plan: Plan): void {
  const read = readOperation(word);
  const got = word.length > 40 ? `${word.slice(0, 40)}…` : word;
  if (read === null) {
    throw new PlanError(
      'unknown',
      `Stage ${stage} must have operations such as 5F2, separated by one space, got ${JSON.stringify(got)}.`,
      { operation: got, stage }
    );
  }
  const { virtual, kind, microBatch } = read;
  const details = { operation: got, stage, microBatch };
  const count = virtualStages(plan);
  if (virtual >= count || microBatch >= plan.micro_batches) {
    throw new PlanError(
      'unknown',
      `Stage ${stage} has ${got}, but there are virtual stages 0 to ${count - 1} and micro-batches 0 to ${plan.micro_batches - 1}.`,
      details
    );
  }
  if (!passes(virtual, microBatch, plan)) {
    const [first, end] = copyOf(virtual < plan.stages ? plan.stages : 0, plan);
    throw new PlanError(
      'unknown',
      `Stage ${stage} has ${got}, but micro-batch ${microBatch} passes virtual stages ${first} to ${end - 1}, the other copy of the model.`,
      details
    );
  }
  const holder = stageOf(virtual, plan);
  if (holder !== stage) {
    throw new PlanError(
      'misplaced',
      `Stage ${stage} has ${got}, but stage ${holder} holds virtual stage ${virtual}. Try it there.`,
      details
    );
  }
  const other = kind === BACKWARD ? [INPUT_GRADIENT, WEIGHT_GRADIENT] : kind === FORWARD ? [] : [BACKWARD];
  const twin = [kind, ...other].find(each => table.find(each, virtual, microBatch) >= 0);
  if (twin !== undefined) {
    throw new PlanError(
      'doubled',
      twin === kind
        ? `Stage ${stage} must have ${got} once, got it twice.`
        : `Stage ${stage} must have a backward pass either whole or as I and W, got ${got} and ${operationName(virtual, twin, microBatch)}.`,
      details
    );
  }
  table.enter(at, kind, virtual, microBatch);
}

function complete(table: OperationTable, virtual: number, microBatch: number): void {
  const at = (kind: number): number => table.find(kind, virtual, microBatch);
  const [forward, whole, input, weight] = [FORWARD, BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT].map(at) as [
    number,
    number,
    number,
    number
  ];
  const lacking =
    forward < 0
      ? FORWARD
      : whole >= 0
        ? -1
        : input < 0 && weight < 0
          ? BACKWARD
          : input < 0
            ? INPUT_GRADIENT
            : weight < 0
              ? WEIGHT_GRADIENT
              : -1;
  const stage = stageOf(virtual, table.shape);
  if (lacking >= 0) {
    const operation = operationName(virtual, lacking, microBatch);
    throw new PlanError(
      'missing',
      `Stage ${stage} must have ${operation}, which stands nowhere. Add it there.`,
      {
        operation,
        stage,
        microBatch
      }
    );
  }
  const [early, late] =
    whole >= 0
      ? [whole, forward]
      : input < forward
        ? [input, forward]
        : weight < input
          ? [weight, input]
          : [1, 0];
  if (early < late) {
    throw new PlanError(
      'order',
      `Stage ${stage} must have ${table.name(late)} before ${table.name(early)}, got it after. Try to swap them.`,
      table.details(early)
    );
  }
}

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

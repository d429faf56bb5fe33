import type { Plan } from '../protocol/pipeline.generated';
import {
  BACKWARD,
  FORWARD,
  INPUT_GRADIENT,
  operationName,
  readOperation,
  WEIGHT_GRADIENT,
  OperationTable
} from './operation';
import { PlanError, checkShape, copyOf, passes, stageOf, virtualStages } from './plan-shape';

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

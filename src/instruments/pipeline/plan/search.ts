import { SeededRandom } from '../../../protocol/seeded-random';
import type { PipelineTimes, Plan } from '../protocol/pipeline.generated';
import { checkPlan } from './check-plan';
import { ExactOrder } from './exact-order';
import { greedyOrder, type IGreedyRule } from './greedy-order';
import { SLICE, Simulation } from './simulation';
import { MADE_SCHEDULES, makePlan, shapeOf, type MadeSchedule } from './make-plan';
import { byteWords, overLimit, peakMemory, memoryChange, timesFor, type IStageTimes } from './memory';
import type { IPlanShape } from './plan-shape';
import { FORWARD, operationName, PlanError, checkShape, stageOf, virtualStages } from './plan-shape';

export interface ISearchRequest {
  readonly stages: number;
  readonly micro_batches: number;
  /** Chunks of a stage in the orders that take several. */
  readonly chunks: number;
  readonly times: PipelineTimes;
  /** Bytes that a stage may hold; Infinity where there is no limit. */
  readonly memoryBytes: number;
  readonly seed: number;
  /** Orders that may be tried. */
  readonly effort: number;
}

/** Most operations that a search simulates, whatever its effort: some 400 orders of 100,000 operations. */
const MOST_OPERATIONS = 4e7;

/** Forward passes of all list schedules of a shape, at most: of a large plan there are a few only. */
const LIST_PASSES = 2e5;

/** Passes of list schedules by random preference, at most: 100 of 50 passes each. */
const RANDOM_PASSES = 5000;

/** States that the exact search may look at, however many orders may be tried: it does not breathe. */
const MOST_STATES = 20_000;

/** Of so many of the best first orders the search goes on, for a while. */
const KEPT = 4;

interface IStart {
  readonly plan: Plan;
  readonly simulation: Simulation;
  readonly step: number;
  readonly peak: number;
}

/** First orders: how many there were, and the best of them. */
interface IStarts {
  count: number;
  best: IStart[];
}

/**
 * Look for the order with the shortest step under a memory limit.
 *
 * First orders are all other schedules with one copy of the model, their backward passes in two parts, and
 * list schedules of several rules for one chunk, for as many as are asked for, and for two in a V, all as far
 * as they are within the limit. The best of them are improved by moves along their critical paths; small
 * plans are then searched for certain. So the result is no longer than any of those schedules that is within
 * the limit, and the same for the same request.
 * @throws PlanError `memory` where weights and one micro-batch exceed the limit on a stage in any order.
 */
export function* searchPlan(request: ISearchRequest): Generator<void, Plan> {
  const { stages, micro_batches, chunks } = request;
  const shapes: IPlanShape[] = [{ stages, chunks: 1, micro_batches, placement: 'loop' }];
  if (stages > 1) {
    shapes.push({ stages, chunks: 2, micro_batches, placement: 'v' });
    if (chunks > 1) {
      shapes.push({ stages, chunks, micro_batches, placement: 'loop' });
    }
  }
  const starts: IStarts = { count: 0, best: [] };
  for (const name of MADE_SCHEDULES) {
    const plan = made(name, request);
    // Two copies of a model are another thing: what they exchange at a step's end is in no times.
    if (plan !== null && plan.placement !== 'two_way') {
      keep(starts, plan, request);
      yield;
    }
  }
  let refused: PlanError | null = null;
  for (const shape of shapes) {
    try {
      yield* listSchedules(starts, shape, request);
    } catch (error) {
      if (!(error instanceof PlanError)) {
        throw error;
      }
      refused ??= error;
    }
  }
  // Layers may lie so that one shape fits where another does not.
  if (starts.count === 0 && refused !== null) {
    throw refused;
  }
  return yield* improved(starts, request);
}

/** Look for the best order of one shape, as `searchPlan` does. */
export function* searchShape(shape: IPlanShape, request: ISearchRequest): Generator<void, Plan> {
  const starts: IStarts = { count: 0, best: [] };
  yield* listSchedules(starts, shape, request);
  return yield* improved(starts, request);
}

function* improved(starts: IStarts, { seed, effort, memoryBytes }: ISearchRequest): Generator<void, Plan> {
  const random = new SeededRandom(seed);
  const retained = starts.best.map(({ plan, simulation }) => ({
    plan,
    simulation,
    search: new OrderSearch(simulation, memoryBytes)
  }));
  const count = retained[0]!.simulation.table.count;
  const tries = Math.max(1, Math.min(effort, Math.ceil(MOST_OPERATIONS / count)) - starts.count);
  for (const { search } of retained) {
    yield* search.improve(Math.ceil(tries / 2 / retained.length), random);
  }
  let best = retained.reduce((a, b) => (b.search.best < a.search.best ? b : a));
  yield* best.search.improve(Math.ceil(tries / 2), random);
  // Where there is less to try than that, the best order of each shape can be found for certain.
  let shortest = best.search.best;
  const tried = new Set<string>();
  for (const each of retained) {
    const shape = `${each.plan.chunks} ${each.plan.placement}`;
    if (!tried.has(shape)) {
      tried.add(shape);
      const { table, times, order } = each.simulation;
      const found = new ExactOrder(table, times, memoryBytes).find(
        shortest,
        Math.min(MOST_STATES, 10 * effort)
      );
      if (found !== null) {
        order.set(found);
        shortest = each.simulation.run();
        best = each;
      }
      yield;
    }
  }
  return { ...best.plan, schedule: 'search', order: ordered(best.simulation) };
}

/** Write an order down. Micro-batches are alike, and numbered as they begin. */
function ordered({ table, order }: Simulation): string[] {
  const { kind, virtual, microBatch, starts, shape } = table;
  const numbers = new Map<number, number>();
  for (const at of order) {
    if (kind[at] === FORWARD && virtual[at] === 0) {
      numbers.set(microBatch[at]!, numbers.size);
    }
  }
  return Array.from({ length: shape.stages }, (_, stage) =>
    Array.from(order.subarray(starts[stage], starts[stage + 1]), at =>
      operationName(virtual[at]!, kind[at]!, numbers.get(microBatch[at]!)!)
    ).join(' ')
  );
}

function made(name: MadeSchedule, { times, ...numbers }: ISearchRequest): Plan | null {
  try {
    const shape = shapeOf(name, numbers);
    return makePlan(name, shape, timesFor(times, shape));
  } catch (error) {
    if (error instanceof PlanError) {
      return null;
    }
    throw error;
  }
}

/** Keep a plan, its backward passes in two parts, as a first order where it is within the limit. */
function keep(starts: IStarts, plan: Plan, { times: all, memoryBytes }: ISearchRequest): void {
  const split = { ...plan, order: plan.order.map(text => text.split(' ').map(inTwoParts).join(' ')) };
  const table = checkPlan(split);
  const times = timesFor(all, plan);
  const peak = Math.max(...peakMemory(table, times));
  if (overLimit(peak, memoryBytes) > 0) {
    return;
  }
  const simulation = new Simulation(table, times);
  const step = simulation.run();
  starts.count += 1;
  // Of orders of one shape that take the same time, the one that holds least: they are mostly alike.
  const twin = starts.best.find(
    each => each.step === step && each.plan.chunks === plan.chunks && each.plan.placement === plan.placement
  );
  if (twin === undefined || peak < twin.peak) {
    const others = starts.best.filter(each => each !== twin);
    starts.best = [...others, { plan: split, simulation, step, peak }]
      .sort((a, b) => a.step - b.step || a.peak - b.peak)
      .slice(0, KEPT);
  }
}

function inTwoParts(word: string): string {
  return word.includes('B') ? `${word.replace('B', 'I')} ${word.replace('B', 'W')}` : word;
}

/** Orders of one shape by rules: kind of pass first, order through chunks, micro-batches in flight. */
function* listSchedules(starts: IStarts, shape: IPlanShape, request: ISearchRequest): Generator<void> {
  checkShape(shape);
  const times = timesFor(request.times, shape);
  const fit = microBatchesThatFit(shape, times, request.memoryBytes);
  const { stages, micro_batches } = shape;
  const limits = [
    // As many as there is memory for, in part; whole; and as 1F1B, ZB-H2 and nobody have.
    undefined,
    fit,
    fit.map((_, stage) => stages - stage),
    fit.map((_, stage) => 2 * (stages - stage) - 1),
    fit.map(() => 1)
  ];
  const room = times.weights.map(weights => request.memoryBytes * (1 + 1e-9) - weights);
  const ranks: IGreedyRule['rank'][] = [
    (virtual, microBatch) => microBatch * virtualStages(shape) + virtual,
    (virtual, microBatch) => virtual * micro_batches + microBatch,
    (virtual, microBatch, backward) => (backward ? virtual : -virtual) * micro_batches + microBatch
  ];
  const firsts = [{ turns: true }, { turns: false }, { turns: false, forwardFirst: true }];
  const enter = (rule: IGreedyRule): void => {
    const order = greedyOrder(shape, times, {
      ...rule,
      ...(Number.isFinite(request.memoryBytes) ? { capacity: room } : {}),
      split: true
    });
    keep(starts, { schedule: 'search', ...shape, order: order.map(words => words.join(' ')) }, request);
  };
  let left = LIST_PASSES;
  for (const most of limits) {
    for (const rank of shape.chunks > 1 ? ranks : ranks.slice(0, 1)) {
      for (const first of firsts) {
        if (left > 0) {
          enter({ rank, most, ...first });
          left -= virtualStages(shape) * micro_batches;
          yield;
        }
      }
    }
  }
  const count = virtualStages(shape) * micro_batches;
  const random = new SeededRandom(request.seed);
  for (let at = 0; at < Math.min(request.effort / 20, RANDOM_PASSES / count); at += 1) {
    const keys = Float64Array.from({ length: 2 * count }, () => random.centred());
    enter({
      rank: (virtual, microBatch, backward) =>
        keys[(backward ? count : 0) + virtual * micro_batches + microBatch]!,
      most: limits[random.below(limits.length)],
      ...firsts[random.below(firsts.length)]!
    });
    yield;
  }
}

/**
 * How many micro-batches each stage can hold at once, whole.
 * @throws PlanError `memory` where one does not fit.
 */
function microBatchesThatFit(shape: IPlanShape, times: IStageTimes, memoryBytes: number): number[] {
  const each = new Float64Array(shape.stages);
  times.activation.forEach((bytes, virtual) => (each[stageOf(virtual, shape)]! += bytes));
  return Array.from(each, (bytes, stage) => {
    const weights = times.weights[stage]!;
    if (overLimit(weights + bytes, memoryBytes) > 0) {
      throw new PlanError(
        'memory',
        `Stage ${stage} needs ${byteWords(weights + bytes)} for its weights and one micro-batch, got a limit of ${byteWords(memoryBytes)}. Try more stages, or to compute activations again.`,
        { stage }
      );
    }
    return bytes === 0
      ? shape.micro_batches
      : Math.min(shape.micro_batches, Math.max(1, Math.floor((memoryBytes * (1 + 1e-9) - weights) / bytes)));
  });
}

/** The farthest that an operation is moved at once; most moves are by one or two places. */
const REACH = 12;

/**
 * Improves the order of a simulation: moves operations, mostly of the critical path, within their stage,
 * keeps what is no longer, and at first also what is longer by up to half an operation, less and less so
 * (threshold accepting, Dueck and Scheuer 1990). What would exceed the memory limit or deadlock is never
 * kept.
 */
class OrderSearch {
  /** @param simulation - Of a checked plan that is within the limit; its order is changed. */
  constructor(
    private readonly simulation: Simulation,
    memoryBytes: number
  ) {
    const { table, times } = simulation;
    this.change = Float64Array.from({ length: table.count }, (_, at) => memoryChange(table, times, at));
    // A limit is meant to be reached: rounding must not stand in the way.
    this.capacity = times.weights.map(weights => memoryBytes * (1 + 1e-9) - weights);
    this.stageOf = Int32Array.from({ length: table.count }, (_, at) => table.stage(at));
    this.orderIndex = new Int32Array(table.count);
    this.used = new Float64Array(table.count);
    this.bestOrder = simulation.order.slice();
    this.best = this.backToBest();
    this.step = this.best;
  }

  /** ms of the best order's step. */
  best: number;

  /** Try moves, and end with the best order in the simulation. */
  *improve(tries: number, random: SeededRandom): Generator<void, void> {
    const { simulation } = this;
    const { table } = simulation;
    let path = this.criticalIndices();
    let worked = 0;
    const mean = simulation.durations.reduce((a, b) => a + b, 0) / table.count;
    // Moves that cannot be made cost little, but must not go on for ever.
    for (let tried = 0, looked = 0; tried < tries && looked < 20 * tries && path.length > 0; looked += 1) {
      const from = random.below(3) === 0 ? random.below(table.count) : path[random.below(path.length)]!;
      const reach = 1 + random.below(1 + random.below(REACH));
      const to = from + (random.below(2) === 0 ? reach : -reach);
      const stage = this.stageOf[simulation.order[from]!]!;
      if (to < table.starts[stage]! || to >= table.starts[stage + 1]! || !this.mayMove(from, to)) {
        continue;
      }
      this.move(from, to);
      const low = Math.min(from, to);
      const high = Math.max(from, to) + 1;
      if (!this.hold(low, high, stage)) {
        this.move(to, from);
        this.hold(low, high, stage);
        continue;
      }
      tried += 1;
      const step = simulation.run();
      const slack = 0.5 * mean * Math.max(0, 1 - (1.3 * tried) / tries);
      if (step <= this.step || step <= this.best + slack * (random.centred() + 0.5)) {
        this.step = step;
        if (step < this.best) {
          this.best = step;
          this.bestOrder.set(simulation.order);
        }
        path = this.criticalIndices();
      } else {
        this.move(to, from);
        this.hold(low, high, stage);
      }
      worked += table.count;
      if (worked >= SLICE) {
        worked = 0;
        yield;
      }
    }
    this.step = this.backToBest();
  }

  private backToBest(): number {
    const { order, table } = this.simulation;
    order.set(this.bestOrder);
    order.forEach((at, index) => (this.orderIndex[at] = index));
    for (let stage = 0; stage < table.shape.stages; stage += 1) {
      this.hold(table.starts[stage]!, table.starts[stage + 1]!, stage);
    }
    return this.simulation.run();
  }

  /** Indices of the operations that the step's length consists of. */
  private criticalIndices(): number[] {
    const { table, order, begin, end, free } = this.simulation;
    const indices: number[] = [];
    const last = free.reduce((latest, time, stage) => (time > free[latest]! ? stage : latest), 0);
    let index = table.starts[last + 1]! - 1;
    for (;;) {
      indices.push(index);
      const at = order[index]!;
      const isFirst = index === table.starts[this.stageOf[at]!]!;
      const sender = table.waits[at]!;
      if (sender >= 0 && (isFirst || begin[at]! > end[order[index - 1]!]!)) {
        index = this.orderIndex[sender]!;
      } else if (isFirst) {
        return indices;
      } else {
        index -= 1;
      }
    }
  }

  /** Whether nothing that an operation would pass on its own stage has to stay on its side. */
  private mayMove(from: number, to: number): boolean {
    const { order, table } = this.simulation;
    const { virtual, microBatch, waits } = table;
    const moved = order[from]!;
    const way = to > from ? 1 : -1;
    for (let index = from + way; index !== to + way; index += way) {
      const other = order[index]!;
      if (
        (virtual[other] === virtual[moved] && microBatch[other] === microBatch[moved]) ||
        waits[moved] === other ||
        waits[other] === moved
      ) {
        return false;
      }
    }
    return true;
  }

  private move(from: number, to: number): void {
    const { order } = this.simulation;
    const moved = order[from]!;
    if (to < from) {
      order.copyWithin(to + 1, to, from);
    } else {
      order.copyWithin(from, from + 1, to + 1);
    }
    order[to] = moved;
    for (let index = Math.min(from, to); index <= Math.max(from, to); index += 1) {
      this.orderIndex[order[index]!] = index;
    }
  }

  /** Note what a stage holds before each place; false where one of them exceeds the limit. */
  private hold(first: number, end: number, stage: number): boolean {
    const { order, table } = this.simulation;
    const { change, used: held } = this;
    let holds = first === table.starts[stage]! ? 0 : held[first - 1]! + change[order[first - 1]!]!;
    let fits = true;
    for (let index = first; index < end; index += 1) {
      const at = order[index]!;
      held[index] = holds;
      holds += change[at]!;
      fits &&= table.kind[at] !== FORWARD || holds <= this.capacity[stage]!;
    }
    return fits;
  }

  private step: number;
  private readonly bestOrder: Int32Array;
  /** By operation: its place, its stage, what it adds to the memory. */
  private readonly orderIndex: Int32Array;
  private readonly stageOf: Int32Array;
  private readonly change: Float64Array;
  /** By place: what the stage holds before it. */
  private readonly used: Float64Array;
  /** By stage: bytes beside the weights. */
  private readonly capacity: Float64Array;
}

import { type OperationTable, virtualStages } from './plan-shape';
import type { IStageTimes } from './memory';
import { SeededRandom } from '../../../protocol/seeded-random';

/**
 * Runs a plan's operations with given durations.
 *
 * Each stage runs its operations in their order, each as soon as the stage is free and the message that it
 * waits for is there. Sending costs a stage nothing: messages of one direction follow one another as they
 * were given to the link, and arrive the link's latency after their last byte left. A message to the own
 * stage is there at once. The optimizer runs on each stage after its last operation. One pass over the
 * operations, and no object for any of them.
 */
export class Simulation {
  /**
   * @param times - Of the same shape.
   * @param overlapped - Forward passes that run as one with the operation after them: both begin when what
   *   both wait for is there, and give on what they have when both are done.
   */
  constructor(
    readonly table: OperationTable,
    readonly times: IStageTimes,
    overlapped: readonly number[] = []
  ) {
    const { count, links, shape } = table;
    this.durations = new Float64Array(count);
    this.begin = new Float64Array(count);
    this.end = new Float64Array(count);
    this.arrival = new Float64Array(count);
    this.optimizer = times.optimizer.slice();
    this.send = new Float64Array(links.length);
    this.latency = new Float64Array(links.length);
    this.target = Int32Array.from(links, ({ to }) => to);
    this.linkFree = new Float64Array(links.length);
    this.next = new Int32Array(shape.stages);
    this.free = new Float64Array(shape.stages);
    this.work = new Int32Array(count + shape.stages);
    this.order = Int32Array.from({ length: count }, (_, at) => at);
    this.also = overlapped.length === 0 ? null : new Int32Array(count).fill(-1);
    const { kind, virtual } = table;
    const width = virtualStages(shape);
    for (let at = 0; at < count; at += 1) {
      this.durations[at] = times.duration[kind[at]! * width + virtual[at]!]!;
    }
    links.forEach((link, at) => {
      const takes = times.link(link);
      this.send[at] = takes.send;
      this.latency[at] = takes.latency;
    });
    for (const at of overlapped) {
      this.also![at] = table.waits[at + 1]! < 0 ? -1 : at + 1;
      this.durations[at]! += this.durations[at + 1]!;
      this.durations[at + 1] = 0;
    }
  }

  /** ms of each operation, each stage's optimizer, and each link's messages. May be changed between runs. */
  readonly durations: Float64Array;
  readonly optimizer: Float64Array;
  readonly send: Float64Array;
  readonly latency: Float64Array;
  /** Which operation stands at each place; may be changed between runs, within a stage. */
  readonly order: Int32Array;
  /** ms from the step's begin, of each operation and of the arrival of the message it waits for. */
  readonly begin: Float64Array;
  readonly end: Float64Array;
  readonly arrival: Float64Array;
  /** When each stage is done, with its optimizer. */
  readonly free: Float64Array;

  /** The longest that a stage is busy, from its first operation to its end, in the step that was run last. */
  get periodMs(): number {
    const { begin, free, table } = this;
    return free.reduce((most, done, stage) => Math.max(most, done - begin[table.starts[stage]!]!), 0);
  }

  /**
   * Run the step.
   * @returns ms until the last stage is done; Infinity where operations wait for one another in a circle,
   *   which a checked plan's do not.
   */
  run(): number {
    const { begin, end, arrival, durations, order, send, latency, target, linkFree, next, free, work, also } =
      this;
    const { starts, waits, feeds, route, shape } = this.table;
    const { stages } = shape;
    arrival.fill(-1);
    linkFree.fill(0);
    free.fill(0);
    let works = 0;
    for (let stage = stages - 1; stage >= 0; stage -= 1) {
      next[stage] = starts[stage]!;
      work[works++] = stage;
    }
    let done = 0;
    while (works > 0) {
      const stage = work[--works]!;
      const stop = starts[stage + 1]!;
      let index = next[stage]!;
      let time = free[stage]!;
      for (; index < stop; index += 1) {
        const at = order[index]!;
        if (waits[at]! >= 0) {
          const there = arrival[at]!;
          if (there < 0) {
            break;
          }
          time = there > time ? there : time;
        }
        if (also !== null && also[at]! >= 0) {
          const there = arrival[also[at]!]!;
          if (there < 0) {
            break;
          }
          time = there > time ? there : time;
        }
        begin[at] = time;
        time += durations[at]!;
        end[at] = time;
        const fed = feeds[at]!;
        if (fed >= 0) {
          const link = route[at]!;
          if (link < 0) {
            arrival[fed] = time;
          } else {
            const left = (linkFree[link]! > time ? linkFree[link]! : time) + send[link]!;
            linkFree[link] = left;
            arrival[fed] = left + latency[link]!;
            const other = target[link]!;
            const waiting = next[other]!;
            const first = waiting < starts[other + 1]! ? order[waiting]! : -1;
            if (first >= 0 && (first === fed || (also !== null && also[first] === fed))) {
              work[works++] = other;
            }
          }
        }
      }
      done += index - next[stage]!;
      next[stage] = index;
      free[stage] = time;
    }
    if (done < this.table.count) {
      return Infinity;
    }
    let last = 0;
    for (let stage = 0; stage < stages; stage += 1) {
      free[stage]! += this.optimizer[stage]!;
      last = free[stage]! > last ? free[stage]! : last;
    }
    return last;
  }

  private readonly also: Int32Array | null;
  private readonly target: Int32Array;
  private readonly linkFree: Float64Array;
  private readonly next: Int32Array;
  private readonly work: Int32Array;
}

/** What a step takes where its durations vary, in ms: the mean, and what 95 % of the steps lie between. */
export interface ISpread {
  readonly mean: number;
  readonly low: number;
  readonly high: number;
  readonly typical: ITypical;
}

/** When things happen on average over steps that vary, ms from a step's begin. */
export interface ITypical {
  /** Of each operation. */
  readonly begin: Float64Array;
  readonly end: Float64Array;
  /** Of each stage, with its optimizer. */
  readonly done: Float64Array;
  /** The longest that a stage is busy. */
  readonly periodMs: number;
}

/** Operations that are simulated between two breaths: about 10 ms. */
export const SLICE = 200_000;

const ROOT = Math.sqrt(3);

/**
 * Run the same plan many times with durations that vary independently: a duration times 1 + jitter times a
 * number of mean 0 and variance 1, at least 0.
 *
 * The number is a sum of four uniform ones, nearly normal and never beyond 3.5, so that durations stay
 * unbiased up to a jitter of 0.28; messages take what they take. 50 to 400 steps, fewer of large plans.
 * Yields between slices; the same seed gives the same steps everywhere. The simulation is left as it was, not
 * run.
 */
export function* spreadOf(simulation: Simulation, seed: number): Generator<void, ISpread> {
  const { durations, optimizer, table, times } = simulation;
  const random = new SeededRandom(seed);
  const mean = durations.slice();
  const still = optimizer.slice();
  const count = Math.max(50, Math.min(400, Math.floor(2e6 / table.count)));
  const steps = new Float64Array(count);
  const scale = times.jitter * ROOT;
  const vary = (from: Float64Array, to: Float64Array): void => {
    for (let at = 0; at < from.length; at += 1) {
      const factor = 1 + scale * (random.centred() + random.centred() + random.centred() + random.centred());
      to[at] = factor > 0 ? from[at]! * factor : 0;
    }
  };
  const [begin, end] = [new Float64Array(table.count), new Float64Array(table.count)];
  const done = new Float64Array(simulation.free.length);
  let [worked, period] = [0, 0];
  const add = (sum: Float64Array, of: Float64Array): void => {
    for (let at = 0; at < sum.length; at += 1) {
      sum[at]! += of[at]! / count;
    }
  };
  for (let step = 0; step < count; step += 1) {
    vary(mean, durations);
    vary(still, optimizer);
    steps[step] = simulation.run();
    add(begin, simulation.begin);
    add(end, simulation.end);
    add(done, simulation.free);
    period += simulation.periodMs / count;
    worked += 4 * table.count;
    if (worked >= SLICE) {
      worked = 0;
      yield;
    }
  }
  durations.set(mean);
  optimizer.set(still);
  const sorted = steps.slice().sort();
  return {
    mean: steps.reduce((sum, each) => sum + each, 0) / count,
    low: quantile(sorted, 0.025),
    high: quantile(sorted, 0.975),
    typical: { begin, end, done, periodMs: period }
  };
}

export const median = (values: readonly number[]): number =>
  quantile(
    [...values].sort((a, b) => a - b),
    0.5
  );

/** The latency of messages that a receiver was idle for, by how long each took: see `timesFromMeasured`. */
export function latencyOf(gaps: readonly number[]): number {
  const least = quantile(
    [...gaps].sort((a, b) => a - b),
    0.25
  );
  return Number.isFinite(least) ? Math.max(0, least) : 0;
}

/** A quantile of sorted numbers, between two of them in proportion. */
export function quantile(sorted: ArrayLike<number>, share: number): number {
  const index = share * (sorted.length - 1);
  const below = Math.floor(index);
  const first = sorted[below] ?? NaN;
  return first + (index - below) * ((sorted[below + 1] ?? first) - first);
}

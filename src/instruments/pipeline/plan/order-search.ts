import type { SeededRandom } from '../../../protocol/seeded-random';
import { SLICE } from './jitter';
import { memoryChange } from './memory';
import { FORWARD } from './operation';
import type { Simulation } from './simulation';

/** The farthest that an operation is moved at once; most moves are by one or two places. */
const REACH = 12;

/**
 * Improves the order of a simulation: moves operations, mostly of the critical path, within their stage, keeps what is no longer, and at first also what is longer by up to half an operation, less and less so
 * (threshold accepting, Dueck and Scheuer 1990). What would exceed the memory limit or deadlock is never kept.
 */
export class OrderSearch {
  /**
   * @param simulation - Of a checked plan that is within the limit; its order is changed.
   * @param memoryBytes - What a stage may hold.
   */
  constructor(
    private readonly simulation: Simulation,
    memoryBytes: number
  ) {
    const { table, times } = simulation;
    this.change = Float64Array.from({ length: table.count }, (_, at) => memoryChange(table, times, at));
    // A limit is meant to be reached: rounding must not stand in the way.
    this.room = times.weights.map(weights => memoryBytes * (1 + 1e-9) - weights);
    this.stageOf = Int32Array.from({ length: table.count }, (_, at) => table.stage(at));
    this.place = new Int32Array(table.count);
    this.held = new Float64Array(table.count);
    this.bestOrder = simulation.order.slice();
    this.best = this.backToBest();
    this.step = this.best;
  }

  /** ms of the best order's step. */
  best: number;

  /**
   * Try moves, and end with the best order in the simulation.
   *
   * @param tries - Orders that may be simulated.
   */
  *improve(tries: number, random: SeededRandom): Generator<void, void> {
    const { simulation } = this;
    const { table } = simulation;
    let path = this.criticalPlaces();
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
        path = this.criticalPlaces();
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
    order.forEach((at, place) => (this.place[at] = place));
    for (let stage = 0; stage < table.shape.stages; stage += 1) {
      this.hold(table.starts[stage]!, table.starts[stage + 1]!, stage);
    }
    return this.simulation.run();
  }

  /** Places of the operations that the step's length consists of. */
  private criticalPlaces(): number[] {
    const { table, order, begin, end, free } = this.simulation;
    const places: number[] = [];
    const last = free.reduce((latest, time, stage) => (time > free[latest]! ? stage : latest), 0);
    let place = table.starts[last + 1]! - 1;
    for (;;) {
      places.push(place);
      const at = order[place]!;
      const isFirst = place === table.starts[this.stageOf[at]!]!;
      const sender = table.waits[at]!;
      if (sender >= 0 && (isFirst || begin[at]! > end[order[place - 1]!]!)) {
        place = this.place[sender]!;
      } else if (isFirst) {
        return places;
      } else {
        place -= 1;
      }
    }
  }

  /** Whether nothing that an operation would pass on its own stage has to stay on its side. */
  private mayMove(from: number, to: number): boolean {
    const { order, table } = this.simulation;
    const { virtual, microBatch, waits } = table;
    const moved = order[from]!;
    const way = to > from ? 1 : -1;
    for (let place = from + way; place !== to + way; place += way) {
      const other = order[place]!;
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
    for (let place = Math.min(from, to); place <= Math.max(from, to); place += 1) {
      this.place[order[place]!] = place;
    }
  }

  /** Note what a stage holds before each place; false where one of them exceeds the limit. */
  private hold(first: number, end: number, stage: number): boolean {
    const { order, table } = this.simulation;
    const { change, held } = this;
    let holds = first === table.starts[stage]! ? 0 : held[first - 1]! + change[order[first - 1]!]!;
    let fits = true;
    for (let place = first; place < end; place += 1) {
      const at = order[place]!;
      held[place] = holds;
      holds += change[at]!;
      fits &&= table.kind[at] !== FORWARD || holds <= this.room[stage]!;
    }
    return fits;
  }

  private step: number;
  private readonly bestOrder: Int32Array;
  /** By operation: its place, its stage, what it adds to the memory. */
  private readonly place: Int32Array;
  private readonly stageOf: Int32Array;
  private readonly change: Float64Array;
  /** By place: what the stage holds before it. */
  private readonly held: Float64Array;
  /** By stage: bytes beside the weights. */
  private readonly room: Float64Array;
}

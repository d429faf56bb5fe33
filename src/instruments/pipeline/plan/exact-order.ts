import { memoryChange, type IStageTimes } from './memory';
import { FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, type OperationTable, virtualStages } from './plan-shape';

/** With more operations the state is too large, and the search hopeless. */
const MOST_OPERATIONS = 48;

/** Progress of a step: when stages and links are free, messages arrive, and the last operation began. */
type State = Float64Array;

/**
 * Finds the best order of a small plan for certain: branch and bound over operations in the order of their
 * begins.
 *
 * A branch ends where its bound is no shorter than what is known: a stage's time with all that it still has
 * to do, or an operation's begin with all that must follow it. Of two branches that did the same operations
 * one that is nowhere later is enough: what a stage holds depends on what it did alone.
 */
export class ExactOrder {
  /**
   * @param table - A checked plan; which operations there are is taken from it, not their order.
   * @param times - Of the same shape.
   */
  constructor(
    private readonly table: OperationTable,
    private readonly times: IStageTimes,
    memoryBytes: number
  ) {
    const { count, kind, virtual, shape, links } = table;
    const width = virtualStages(shape);
    const each = (value: (at: number) => number): number[] =>
      Array.from({ length: count }, (_, at) => value(at));
    this.duration = each(at => times.duration[kind[at]! * width + virtual[at]!]!);
    this.change = each(at => memoryChange(table, times, at));
    this.stage = each(at => table.stage(at));
    // What an operation waits for on its own virtual stage.
    this.local = each(at =>
      kind[at] === FORWARD
        ? -1
        : table.find(
            kind[at] === WEIGHT_GRADIENT ? INPUT_GRADIENT : FORWARD,
            virtual[at]!,
            table.microBatch[at]!
          )
    );
    this.links = links.map(link => times.link(link));
    this.capacity = times.weights.map(weights => memoryBytes * (1 + 1e-9) - weights);
    this.used = new Float64Array(shape.stages);
    this.rest = times.optimizer.slice();
    this.duration.forEach((duration, at) => (this.rest[this.stage[at]!]! += duration));
    this.tail = new Array<number>(count).fill(0);
    // Those that follow an operation have a longer way behind them.
    for (const at of each(at => at).sort((a, b) => this.rankOf(b) - this.rankOf(a))) {
      this.tail[at] = this.tailOf(at);
    }
  }

  /**
   * @param known - ms of the shortest step that is known.
   * @returns The best order, by place; null where none is shorter, the plan is too large, or the states did
   *   not suffice and nothing shorter was found.
   */
  find(known: number, states: number): Int32Array | null {
    if (this.table.count > MOST_OPERATIONS) {
      return null;
    }
    this.best = known;
    this.left = states;
    this.visit(new Float64Array(this.times.weights.length + this.links.length + this.table.count + 1));
    return this.found;
  }

  private visit(state: State): void {
    const { table, path, best } = this;
    const { starts } = table;
    const { stages } = table.shape;
    this.left -= 1;
    for (let stage = 0; stage < stages; stage += 1) {
      if (state[stage]! + this.rest[stage]! >= best - 1e-9) {
        return;
      }
    }
    if (path.length === table.count) {
      this.best = Math.max(...this.rest.map((rest, stage) => state[stage]! + rest));
      const order = new Int32Array(table.count);
      const next = starts.slice();
      path.forEach(at => (order[next[this.stage[at]!]!++] = at));
      this.found = order;
      return;
    }
    const ready: [begin: number, at: number][] = [];
    for (let at = 0; at < table.count; at += 1) {
      const stage = this.stage[at]!;
      const isReady =
        !this.done[at] &&
        (this.local[at]! < 0 || this.done[this.local[at]!] === true) &&
        (table.waits[at]! < 0 || this.done[table.waits[at]!] === true);
      if (isReady) {
        const begin = Math.max(state[stage]!, state[stages + this.links.length + at]!);
        if (begin + this.tail[at]! >= best - 1e-9) {
          return;
        }
        if (table.kind[at] !== FORWARD || this.used[stage]! + this.change[at]! <= this.capacity[stage]!) {
          ready.push([begin, at]);
        }
      }
    }
    if (!this.isNew(state)) {
      return;
    }
    for (const [begin, at] of ready.sort((a, b) => a[0] - b[0] || this.tail[b[1]]! - this.tail[a[1]]!)) {
      if (begin >= state[state.length - 1]! && this.left > 0) {
        const stage = this.stage[at]!;
        this.done[at] = true;
        this.used[stage]! += this.change[at]!;
        this.rest[stage]! -= this.duration[at]!;
        path.push(at);
        this.visit(this.after(state, at, begin));
        path.pop();
        this.rest[stage]! += this.duration[at]!;
        this.used[stage]! -= this.change[at]!;
        this.done[at] = false;
      }
    }
  }

  private after(state: State, at: number, begin: number): State {
    const { feeds, route, shape } = this.table;
    const next = state.slice();
    const end = begin + this.duration[at]!;
    next[this.stage[at]!] = end;
    next[next.length - 1] = begin;
    const arrivals = shape.stages + this.links.length;
    // What is done differs in nothing.
    next[arrivals + at] = 0;
    if (feeds[at]! >= 0) {
      const link = route[at]!;
      const sent = link < 0 ? end : Math.max(next[shape.stages + link]!, end) + this.links[link]!.send;
      next[arrivals + feeds[at]!] = link < 0 ? end : sent + this.links[link]!.latency;
      if (link >= 0) {
        next[shape.stages + link] = sent;
      }
    }
    return next;
  }

  /** Whether no state with the same operations done was nowhere later; it is remembered then. */
  private isNew(state: State): boolean {
    const key = this.table.kind.reduce((text, _, at) => text + (this.done[at] === true ? '1' : '0'), '');
    const others = this.seen.get(key) ?? [];
    if (others.some(other => other.every((time, at) => time <= state[at]!))) {
      return false;
    }
    this.seen.set(key, [...others.filter(other => !state.every((time, at) => time <= other[at]!)), state]);
    return true;
  }

  /** ms from an operation's begin until all that must follow it is done. */
  private tailOf(at: number): number {
    const { table, times } = this;
    const { kind, virtual, microBatch, feeds, route } = table;
    const next =
      kind[at] === WEIGHT_GRADIENT
        ? -1
        : kind[at] === FORWARD
          ? table.backward(virtual[at]!, microBatch[at]!)
          : table.find(WEIGHT_GRADIENT, virtual[at]!, microBatch[at]!);
    const own = next < 0 ? times.optimizer[this.stage[at]!]! : this.tail[next]!;
    const link = this.links[route[at]!];
    const fed =
      feeds[at]! < 0 ? 0 : this.tail[feeds[at]!]! + (link === undefined ? 0 : link.send + link.latency);
    return this.duration[at]! + Math.max(own, fed);
  }

  /** Rises along all that operations wait for. */
  private rankOf(at: number): number {
    const { kind, virtual, shape } = this.table;
    const width = virtualStages(shape);
    return kind[at] === FORWARD
      ? virtual[at]!
      : kind[at] === WEIGHT_GRADIENT
        ? 3 * width
        : 2 * width - virtual[at]!;
  }

  private readonly duration: number[];
  private readonly change: number[];
  private readonly stage: number[];
  private readonly local: number[];
  private readonly tail: number[];
  private readonly links: readonly { readonly send: number; readonly latency: number }[];
  private readonly capacity: Float64Array;
  /** By stage: ms that it still has to do; bytes beside its weights. */
  private readonly rest: Float64Array;
  private readonly used: Float64Array;
  private readonly done: boolean[] = [];
  private readonly path: number[] = [];
  private readonly seen = new Map<string, State[]>();
  private best = Infinity;
  private left = 0;
  private found: Int32Array | null = null;
}

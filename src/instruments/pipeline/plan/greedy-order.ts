import {
  BACKWARD,
  FORWARD,
  INPUT_GRADIENT,
  operationName,
  WEIGHT_GRADIENT,
  stageOf,
  virtualOf,
  virtualStages,
  type IPlanShape
} from './plan-shape';
import type { IStageTimes } from './memory';

/** Integers, of which the one with the least key comes out first; of equal keys the least number. */
class Heap {
  get size(): number {
    return this.values.length;
  }

  push(key: number, value: number): void {
    const { keys, values } = this;
    let at = values.length;
    keys.push(key);
    values.push(value);
    while (at > 0) {
      const up = (at - 1) >> 1;
      if (keys[up]! < key || (keys[up] === key && values[up]! <= value)) {
        break;
      }
      keys[at] = keys[up]!;
      values[at] = values[up]!;
      at = up;
    }
    keys[at] = key;
    values[at] = value;
  }

  /** The least key; Infinity where there is none. */
  get key(): number {
    return this.keys[0] ?? Infinity;
  }

  /** The value of the least key; -1 where there is none. */
  get first(): number {
    return this.values[0] ?? -1;
  }

  /** Take the value of the least key out; -1 where there is none. */
  pop(): number {
    const { keys, values } = this;
    const first = values[0] ?? -1;
    const key = keys.pop();
    const value = values.pop();
    const count = values.length;
    if (count === 0 || key === undefined || value === undefined) {
      return first;
    }
    let at = 0;
    for (;;) {
      let down = 2 * at + 1;
      if (down >= count) {
        break;
      }
      const right = down + 1;
      if (
        right < count &&
        (keys[right]! < keys[down]! || (keys[right] === keys[down] && values[right]! < values[down]!))
      ) {
        down = right;
      }
      if (key < keys[down]! || (key === keys[down] && value <= values[down]!)) {
        break;
      }
      keys[at] = keys[down]!;
      values[at] = values[down]!;
      at = down;
    }
    keys[at] = key;
    values[at] = value;
    return first;
  }

  private readonly keys: number[] = [];
  private readonly values: number[] = [];
}

/** How a stage that is free chooses among what is ready. */
export interface IGreedyRule {
  /** Index of a forward or backward pass in the list of preference of its kind; the lowest is taken. */
  rank(virtual: number, microBatch: number, backward: boolean): number;
  /** Forward and backward passes alternate, one each, as in MegaDPP; if false, backward passes come first. */
  readonly turns: boolean;
  /** Splits backward passes in two; weight gradients fill idle time and free memory. Whole if absent. */
  readonly split?: boolean;
  /** Forward passes come first; backward passes when absent. */
  readonly forwardFirst?: boolean;
  /** Most micro-batches in flight on each stage, at least one so that each can end; all when absent. */
  readonly most?: readonly number[];
  /**
   * Bytes of activations that each stage may hold, one whole micro-batch at least; no limit when absent.
   * Micro-batches are then begun in the order of their numbers, and room is kept for what the oldest that is
   * begun still has to do: it can always go on, on every stage, and so no stage waits for ever.
   */
  readonly capacity?: ArrayLike<number>;
}

/**
 * Let the order of a step result from its times: each stage that is free takes the first operation that is
 * ready.
 *
 * Events are worked off in the order of time; all that arrive at one time are there before a stage chooses.
 * @returns Operations of each stage, in the notation of plans.
 */
export function greedyOrder(shape: IPlanShape, times: IStageTimes, rule: IGreedyRule): string[][] {
  return new Greedy(shape, times, rule).run();
}

/** What is ready on one stage. */
class Ready {
  readonly backward = new Heap();
  /** Of micro-batches that the stage has begun, and of others. */
  readonly forward = new Heap();
  readonly fresh = new Heap();
  readonly weight: number[] = [];
  readonly words: string[] = [];
  paid = 0;
  begun = 0;
  /** Bytes of activations; the lowest micro-batch that is not ended. */
  used = 0;
  oldest = 0;
  free = true;
  /** In turns: whether the last was a backward pass. */
  wasBackward = false;
}

class Greedy {
  constructor(
    private readonly shape: IPlanShape,
    private readonly times: IStageTimes,
    private readonly rule: IGreedyRule
  ) {
    this.count = virtualStages(shape);
    this.stages = Array.from({ length: shape.stages }, () => new Ready());
    this.parts = new Uint8Array(shape.stages * shape.micro_batches);
    this.chunksBegun = new Uint8Array(shape.stages * shape.micro_batches);
    this.rests = this.stages.map((_, stage) => {
      const rests = [0];
      for (let chunk = shape.chunks - 1; chunk >= 0; chunk -= 1) {
        rests.unshift(rests[0]! + times.activation[virtualOf(stage, chunk, shape)]!);
      }
      return rests;
    });
    this.linkFree = new Map();
  }

  run(): string[][] {
    const { shape, events, stages } = this;
    for (let microBatch = 0; microBatch < shape.micro_batches; microBatch += 1) {
      this.arrive(FORWARD, 0, microBatch);
    }
    let touched = stages.map((_, stage) => stage);
    for (;;) {
      touched.forEach(stage => this.choose(stage));
      if (events.size === 0) {
        return stages.map(({ words }) => words);
      }
      this.now = events.key;
      const there = new Set<number>();
      while (events.key === this.now) {
        there.add(this.happen(events.pop()));
      }
      touched = [...there].sort((a, b) => a - b);
    }
  }

  /** An event is a stage that is free again (negative), or an operation whose input is there. */
  private happen(event: number): number {
    if (event < 0) {
      this.stages[-event - 1]!.free = true;
      return -event - 1;
    }
    const { micro_batches } = this.shape;
    const microBatch = event % micro_batches;
    const virtual = Math.floor(event / micro_batches) % this.count;
    const kind = Math.floor(event / micro_batches / this.count);
    this.arrive(kind, virtual, microBatch);
    return stageOf(virtual, this.shape);
  }

  private arrive(kind: number, virtual: number, microBatch: number): void {
    const stage = stageOf(virtual, this.shape);
    const ready = this.stages[stage]!;
    const code = this.code(kind, virtual, microBatch);
    const isFresh = this.chunksBegun[stage * this.shape.micro_batches + microBatch] === 0;
    const rank =
      isFresh && this.rule.capacity !== undefined
        ? microBatch
        : this.rule.rank(virtual, microBatch, kind !== FORWARD);
    (kind !== FORWARD ? ready.backward : isFresh ? ready.fresh : ready.forward).push(rank, code);
  }

  private choose(stage: number): void {
    const ready = this.stages[stage]!;
    if (!ready.free) {
      return;
    }
    const { turns, forwardFirst = false } = this.rule;
    const first = turns ? ready.wasBackward : forwardFirst;
    const forward = first || ready.backward.size === 0 ? this.nextForward(stage) : -1;
    if (forward >= 0) {
      this.start(stage, forward);
    } else if (ready.backward.size > 0) {
      this.start(stage, ready.backward.pop());
    } else if (ready.paid < ready.weight.length) {
      this.start(stage, ready.weight[ready.paid++]!);
    }
  }

  /** Take the forward pass out that comes first of those that there is space for; -1 where there is none. */
  private nextForward(stage: number): number {
    const { forward, fresh, begun } = this.stages[stage]!;
    const begins = begun < (this.rule.most?.[stage] ?? Infinity) && this.hasRoom(stage, fresh.first);
    const aside: [number, number][] = [];
    let found = -1;
    while (found < 0 && forward.size > 0 && !(begins && fresh.key < forward.key)) {
      const key = forward.key;
      const code = forward.pop();
      if (this.hasRoom(stage, code)) {
        found = code;
      } else {
        aside.push([key, code]);
      }
    }
    aside.forEach(([key, code]) => forward.push(key, code));
    return found < 0 && begins ? fresh.pop() : found;
  }

  private hasRoom(stage: number, code: number): boolean {
    const { capacity: room } = this.rule;
    if (room === undefined || code < 0) {
      return code >= 0;
    }
    const { micro_batches } = this.shape;
    const { used: held, oldest } = this.stages[stage]!;
    const rest = this.rests[stage]!;
    const keep =
      code % micro_batches === oldest ? 0 : rest[this.chunksBegun[stage * micro_batches + oldest]!]!;
    return held + this.times.activation[Math.floor(code / micro_batches)]! + keep <= room[stage]!;
  }

  private start(stage: number, code: number): void {
    const { shape, times, count } = this;
    const { micro_batches } = shape;
    const microBatch = code % micro_batches;
    const virtual = Math.floor(code / micro_batches) % count;
    const kind = Math.floor(code / micro_batches / count);
    const ready = this.stages[stage]!;
    const begun = stage * micro_batches + microBatch;
    if (kind === FORWARD) {
      ready.begun += this.parts[begun] === 0 ? 1 : 0;
      this.parts[begun]! += 1;
      this.chunksBegun[begun]! += 1;
    } else if (kind === BACKWARD || kind === WEIGHT_GRADIENT) {
      // All chunks of a micro-batch are begun before the first of them is ended.
      this.parts[begun]! -= 1;
      ready.begun -= this.parts[begun] === 0 ? 1 : 0;
    }
    const { activation, kept } = times;
    const [whole, left] = [activation[virtual]!, kept[virtual]!];
    ready.used += [whole, -whole, left - whole, -left][kind]!;
    for (
      let own = stage * micro_batches + ready.oldest;
      this.chunksBegun[own]! > 0 && this.parts[own] === 0;
      own += 1
    ) {
      ready.oldest += 1;
    }
    ready.words.push(operationName(virtual, kind, microBatch));
    ready.free = false;
    ready.wasBackward = kind !== FORWARD;
    const end = this.now + times.duration[kind * count + virtual]!;
    this.events.push(end, -stage - 1);
    const back = this.rule.split === true ? INPUT_GRADIENT : BACKWARD;
    if (kind === FORWARD) {
      const last = virtual === count - 1;
      this.send(end, stage, this.code(last ? back : FORWARD, last ? virtual : virtual + 1, microBatch));
    } else if (kind !== WEIGHT_GRADIENT && virtual > 0) {
      this.send(end, stage, this.code(back, virtual - 1, microBatch));
    }
    if (kind === INPUT_GRADIENT) {
      ready.weight.push(this.code(WEIGHT_GRADIENT, virtual, microBatch));
    }
  }

  private send(end: number, from: number, code: number): void {
    const to = stageOf(Math.floor(code / this.shape.micro_batches) % this.count, this.shape);
    if (to === from) {
      this.events.push(end, code);
      return;
    }
    const key = from * this.shape.stages + to;
    const link = this.linkFree.get(key) ?? { ...this.times.link({ from, to }), free: 0 };
    link.free = Math.max(link.free, end) + link.send;
    this.linkFree.set(key, link);
    this.events.push(link.free + link.latency, code);
  }

  private code(kind: number, virtual: number, microBatch: number): number {
    return (kind * this.count + virtual) * this.shape.micro_batches + microBatch;
  }

  private now = 0;
  private readonly count: number;
  private readonly stages: Ready[];
  private readonly events = new Heap();
  /** By stage and micro-batch: chunks that are begun and not ended. */
  private readonly parts: Uint8Array;
  /** Chunks ever begun by stage and micro-batch; forward bytes of chunks from one on by stage and chunk. */
  private readonly chunksBegun: Uint8Array;
  private readonly rests: number[][];
  private readonly linkFree: Map<number, { free: number; send: number; latency: number }>;
}

import { Heap } from './heap';
import { BACKWARD, FORWARD, INPUT_GRADIENT, operationName, WEIGHT_GRADIENT } from './operation';
import { stageOf, virtualStages, type IPlanShape } from './plan-shape';
import type { IStageTimes } from './stage-times';

/** How a stage that is free chooses among what is ready. */
export interface IGreedyRule {
  /** Place of a forward or backward pass in the list of preference of its kind; the lowest is taken. */
  rank(virtual: number, microBatch: number, backward: boolean): number;
  /** After a backward pass a forward pass comes first: turns of at most one of each, as MegaDPP takes them. Backward passes always come first when false. */
  readonly turns: boolean;
  /** Backward passes in two parts; weight gradients fill what would be idle, and what memory needs. Whole when absent. */
  readonly split?: boolean;
  /** Forward passes come first; backward passes when absent. */
  readonly forwardFirst?: boolean;
  /** Micro-batches that each stage has begun and not ended, at most; all when absent. One at least, so that each can be ended. */
  readonly most?: readonly number[];
}

/**
 * Let the order of a step result from its times: each stage that is free takes the first operation that is ready.
 *
 * Events are worked off in the order of time; all that arrive at one time are there before a stage chooses.
 *
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
    const rank = this.rule.rank(virtual, microBatch, kind !== FORWARD);
    const isFresh = this.parts[stage * this.shape.micro_batches + microBatch] === 0;
    (kind !== FORWARD ? ready.backward : isFresh ? ready.fresh : ready.forward).push(rank, code);
  }

  private choose(stage: number): void {
    const ready = this.stages[stage]!;
    if (!ready.free) {
      return;
    }
    const { turns, forwardFirst = false, most } = this.rule;
    const fits = ready.begun < (most?.[stage] ?? Infinity);
    const fresh = fits ? ready.fresh.key : Infinity;
    const forward = Math.min(ready.forward.key, fresh);
    const first = turns ? ready.wasBackward : forwardFirst;
    if (forward < Infinity && (first || ready.backward.size === 0)) {
      this.start(stage, (ready.forward.key <= fresh ? ready.forward : ready.fresh).pop());
    } else if (ready.backward.size > 0) {
      this.start(stage, ready.backward.pop());
    } else if (ready.paid < ready.weight.length) {
      this.start(stage, ready.weight[ready.paid++]!);
    }
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
    } else if (kind === BACKWARD || kind === WEIGHT_GRADIENT) {
      // All chunks of a micro-batch are begun before the first of them is ended.
      this.parts[begun]! -= 1;
      ready.begun -= this.parts[begun] === 0 ? 1 : 0;
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
  private readonly linkFree: Map<number, { free: number; send: number; latency: number }>;
}

import type { Placement } from '../protocol/pipeline.generated';

/** Why a plan is absent or wrong. `missing` to `shape` are codes of `protocol/fixtures/plans.json`. */
type PlanErrorCode =
  /** An operation stands nowhere. */
  | 'missing'
  /** An operation stands twice, or a backward pass both whole and in parts. */
  | 'doubled'
  /** A word is no operation, or one of a virtual stage or micro-batch that this plan does not have. */
  | 'unknown'
  /** An operation stands on a stage that does not hold its virtual stage. */
  | 'misplaced'
  /** A backward pass stands before its forward pass, or a weight gradient before its input gradient. */
  | 'order'
  /** Operations wait for one another in a circle. */
  | 'cycle'
  /** Numbers of stages, chunks and micro-batches that do not go together. */
  | 'shape'
  /** A request is not what `PlanRequest` says; `field` names the member. */
  | 'request'
  /** A schedule does not take this many stages, chunks or micro-batches. */
  | 'fit'
  /** One micro-batch alone exceeds the memory limit. */
  | 'memory';

export interface IPlanErrorDetails {
  readonly operation?: string;
  readonly stage?: number;
  readonly microBatch?: number;
  /** Dotted path of the request's member at fault. */
  readonly field?: string;
  /** Of a cycle: operations that each wait for the next (the last for the first), or follow it on a stage. */
  readonly cycle?: readonly string[];
}

/** The one error class of the plan room. `message` says what was expected, what came, and what to try. */
export class PlanError extends Error {
  constructor(
    readonly code: PlanErrorCode,
    message: string,
    details: IPlanErrorDetails = {}
  ) {
    super(message);
    this.operation = details.operation ?? null;
    this.stage = details.stage ?? null;
    this.microBatch = details.microBatch ?? null;
    this.field = details.field;
    this.cycle = details.cycle ?? [];
  }

  override readonly name = 'PlanError';
  readonly operation: string | null;
  readonly stage: number | null;
  readonly microBatch: number | null;
  readonly field: string | undefined;
  readonly cycle: readonly string[];
}

/** What a plan's operations are counted by. */
export interface IPlanShape {
  readonly stages: number;
  readonly chunks: number;
  readonly micro_batches: number;
  readonly placement: Placement;
}

/** Most forward passes, or virtual stages times micro-batches, that are planned: a page has to hold them. */
export const MOST_PASSES = 1 << 19;

/** Virtual stages of a plan. */
export const virtualStages = ({ stages, chunks }: IPlanShape): number => stages * chunks;

export function stageOf(virtual: number, { stages, placement }: IPlanShape): number {
  const chunk = Math.floor(virtual / stages);
  const index = virtual % stages;
  const back = placement === 'v' ? chunk % 2 === 1 : placement === 'two_way' && chunk === 1;
  return back ? stages - 1 - index : index;
}

export function virtualOf(stage: number, chunk: number, { stages, placement }: IPlanShape): number {
  const back = placement === 'v' ? chunk % 2 === 1 : placement === 'two_way' && chunk === 1;
  return chunk * stages + (back ? stages - 1 - stage : stage);
}

/** First and last (exclusive) virtual stage of the copy of the model that a virtual stage belongs to. */
export function copyOf(virtual: number, shape: IPlanShape): [first: number, end: number] {
  if (shape.placement !== 'two_way') {
    return [0, virtualStages(shape)];
  }
  return virtual < shape.stages ? [0, shape.stages] : [shape.stages, 2 * shape.stages];
}

/** Whether a micro-batch passes a virtual stage: with two copies of the model, half passes each. */
export function passes(virtual: number, microBatch: number, shape: IPlanShape): boolean {
  return shape.placement !== 'two_way' || virtual < shape.stages === microBatch < shape.micro_batches / 2;
}

/** Micro-batches that pass each virtual stage. */
export function passesOf({ micro_batches, placement }: IPlanShape): number {
  return placement === 'two_way' ? micro_batches / 2 : micro_batches;
}

/**
 * Check that the numbers of a plan go together.
 * @throws PlanError `shape`.
 */
export function checkShape(shape: IPlanShape): void {
  const { chunks, micro_batches, placement } = shape;
  if (placement === 'two_way' && chunks !== 2) {
    throw new PlanError(
      'shape',
      `The placement two_way must have 2 chunks, one of each copy of the model, got ${chunks}.`
    );
  }
  if (placement === 'two_way' && micro_batches % 2 === 1) {
    throw new PlanError(
      'shape',
      `The placement two_way must have an even number of micro-batches, got ${micro_batches}. Try ${micro_batches + 1}.`
    );
  }
  const count = virtualStages(shape) * micro_batches;
  if (count > MOST_PASSES) {
    throw new PlanError(
      'shape',
      `Stages times chunks times micro-batches must be at most ${MOST_PASSES}, got ${count}. Try fewer micro-batches.`
    );
  }
}

/** Kinds of operations, by their number in columns. */
export const KINDS = ['F', 'B', 'I', 'W'] as const;

/** F forward pass, B whole backward pass, I gradient of the input, W gradients of the weights. */
export type Kind = (typeof KINDS)[number];

export const FORWARD = 0;
export const BACKWARD = 1;
export const INPUT_GRADIENT = 2;
export const WEIGHT_GRADIENT = 3;

export function operationName(virtual: number, kind: number, microBatch: number): string {
  return `${virtual}${KINDS[kind]}${microBatch}`;
}

/** Parts of an operation's name; null where a text is none, such as one with a leading zero. */
export function readOperation(word: string): { virtual: number; kind: number; microBatch: number } | null {
  const match = /^(0|[1-9]\d{0,8})([FBIW])(0|[1-9]\d{0,8})$/.exec(word);
  return match === null
    ? null
    : {
        virtual: Number(match[1]),
        kind: 'FBIW'.indexOf(match[2]!),
        microBatch: Number(match[3])
      };
}

/** One direction between two stages. */
export interface ILink {
  readonly from: number;
  readonly to: number;
}

/** The operations of a plan as columns, stage after stage in running order, and what each waits for. */
export class OperationTable {
  constructor(
    readonly shape: IPlanShape,
    lengths: readonly number[]
  ) {
    this.starts = new Int32Array(lengths.length + 1);
    lengths.forEach((length, stage) => (this.starts[stage + 1] = this.starts[stage]! + length));
    this.count = this.starts[lengths.length]!;
    this.kind = new Uint8Array(this.count);
    this.virtual = new Int32Array(this.count);
    this.microBatch = new Int32Array(this.count);
    this.waits = new Int32Array(this.count).fill(-1);
    this.feeds = new Int32Array(this.count).fill(-1);
    this.route = new Int32Array(this.count).fill(-1);
    this.places = new Int32Array(4 * virtualStages(shape) * shape.micro_batches).fill(-1);
  }

  /** First operation of each stage, and the number of all. */
  readonly starts: Int32Array;
  readonly count: number;
  /** Index of `KINDS`. */
  readonly kind: Uint8Array;
  readonly virtual: Int32Array;
  readonly microBatch: Int32Array;
  /** Operation of another virtual stage that it waits for; -1 if none. Its own stage's precede it anyway. */
  readonly waits: Int32Array;
  /** The operation that waits for this one: `waits` the other way round. */
  readonly feeds: Int32Array;
  /** The link of the message that an operation sends; -1 where it sends none, or to its own stage. */
  readonly route: Int32Array;
  /** Every direction that a message takes. */
  readonly links: ILink[] = [];

  enter(at: number, kind: number, virtual: number, microBatch: number): void {
    this.kind[at] = kind;
    this.virtual[at] = virtual;
    this.microBatch[at] = microBatch;
    this.places[this.slot(kind, virtual, microBatch)] = at;
  }

  /** Where an operation is; -1 where it is not. */
  find(kind: number, virtual: number, microBatch: number): number {
    return this.places[this.slot(kind, virtual, microBatch)]!;
  }

  /** Note what waits for what, once every operation is in. */
  connect(): void {
    const { shape } = this;
    const known = new Map<number, number>();
    const routes = new Int32Array(2 * virtualStages(shape)).fill(-1);
    for (let virtual = 0; virtual < virtualStages(shape); virtual += 1) {
      const [first, end] = copyOf(virtual, shape);
      const from = stageOf(virtual, shape);
      [virtual + 1 < end ? virtual + 1 : -1, virtual > first ? virtual - 1 : -1].forEach((next, way) => {
        const to = next < 0 ? from : stageOf(next, shape);
        if (to !== from) {
          const key = from * shape.stages + to;
          const link = known.get(key) ?? this.links.push({ from, to }) - 1;
          known.set(key, link);
          routes[2 * virtual + way] = link;
        }
      });
    }
    for (let at = 0; at < this.count; at += 1) {
      const kind = this.kind[at]!;
      const virtual = this.virtual[at]!;
      const microBatch = this.microBatch[at]!;
      const [first, end] = copyOf(virtual, shape);
      if (kind === FORWARD ? virtual === first : kind === WEIGHT_GRADIENT || virtual === end - 1) {
        continue;
      }
      const waits =
        kind === FORWARD
          ? this.find(FORWARD, virtual - 1, microBatch)
          : this.backward(virtual + 1, microBatch);
      this.waits[at] = waits;
      this.feeds[waits] = at;
      this.route[waits] = routes[2 * this.virtual[waits]! + (kind === FORWARD ? 0 : 1)]!;
    }
  }

  /** The operation that gives a virtual stage's gradient of its input: B or I. */
  backward(virtual: number, microBatch: number): number {
    const whole = this.find(BACKWARD, virtual, microBatch);
    return whole >= 0 ? whole : this.find(INPUT_GRADIENT, virtual, microBatch);
  }

  stage(at: number): number {
    return stageOf(this.virtual[at]!, this.shape);
  }

  name(at: number): string {
    return operationName(this.virtual[at]!, this.kind[at]!, this.microBatch[at]!);
  }

  details(at: number): IPlanErrorDetails {
    return { operation: this.name(at), stage: this.stage(at), microBatch: this.microBatch[at]! };
  }

  private slot(kind: number, virtual: number, microBatch: number): number {
    return (kind * virtualStages(this.shape) + virtual) * this.shape.micro_batches + microBatch;
  }

  private readonly places: Int32Array;
}

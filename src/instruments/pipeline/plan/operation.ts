import { type IPlanErrorDetails, copyOf, stageOf, virtualStages, type IPlanShape } from './plan-shape';

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

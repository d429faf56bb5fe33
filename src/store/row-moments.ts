import { byName, firstIndex } from '../protocol/records';
import type { IMomentIndex, IReadBy } from '../client/run-reader';
import type { MomentGroupsRequest, MomentRowsRequest } from '../protocol/requests.generated';
import type {
  MeasuredTensors,
  MomentFilter,
  MomentGroupBy,
  MomentStatistic
} from '../protocol/views.generated';
import { giveBack } from '../protocol/frame';

/** What is summed up of one tensor, or of a group, in the order in which sums are packed. */
export const SUMS = [
  'count',
  /** NaN and infinite values; they enter nothing else. */
  'nonFinite',
  'sum',
  'squares',
  'absolute',
  /** Sum of squared deviations from the mean, summed on its own: the difference of two sums would cancel. */
  'deviation',
  /** Infinity where no value is finite. */
  'min',
  /** -Infinity where no value is finite. */
  'max'
] as const;

export type IMoments = Readonly<Record<(typeof SUMS)[number], number>>;

const KNOWN = new WeakMap<Float32Array, IMoments>();

/**
 * The sums of one tensor's values, as float64, with the deviation about the mean in a second pass.
 *
 * A tensor never changes once it is kept, so its sums are remembered for as long as it is: a live trend
 * passes over each tensor once.
 */
export function momentsOf(values: Float32Array): IMoments {
  const known = KNOWN.get(values);
  if (known !== undefined) {
    return known;
  }
  let count = 0;
  let sum = 0;
  let squares = 0;
  let absolute = 0;
  let min = Infinity;
  let max = -Infinity;
  for (let at = 0; at < values.length; at += 1) {
    const value = values[at] as number;
    // Only finite numbers leave nothing of themselves.
    if (value - value === 0) {
      count += 1;
      sum += value;
      squares += value * value;
      absolute += value < 0 ? -value : value;
      min = value < min ? value : min;
      max = value > max ? value : max;
    }
  }
  const mean = sum / count;
  let deviation = 0;
  for (let at = 0; at < values.length; at += 1) {
    const value = values[at] as number;
    if (value - value === 0) {
      deviation += (value - mean) * (value - mean);
    }
  }
  const nonFinite = values.length - count;
  const moments = { count, nonFinite, sum, squares, absolute, deviation, min, max };
  KNOWN.set(values, moments);
  return moments;
}

export const isKnown = (values: Float32Array): boolean => KNOWN.has(values);

/** Remember a tensor's sums that were taken elsewhere. */
export function remember(values: Float32Array, moments: IMoments): void {
  KNOWN.set(values, moments);
}

/** Root of the mean square of the finite values; NaN where none is finite. */
export function rmsOf(values: Float32Array): number {
  const { squares, count } = momentsOf(values);
  return Math.sqrt(squares / count);
}

/** Columns of the stream `moments` as integers, and those of float64. `nameId` indexes the names. */
export const WHOLE = ['nameId', 'rank', 'stage', 'gradientStage'] as const;
export const FLOAT = [
  'step',
  'samples',
  'count',
  'mean',
  'm2',
  'm3',
  'm4',
  'min',
  'max',
  'nanCount',
  'infCount',
  'nearZeroCount',
  'rounding',
  'lossScale'
] as const;

/** What a row says of when its gradients were measured; `gradientStage` is a place in here. */
export const GRADIENT_STAGES = ['', 'pre_clip', 'backward', 'pre_step', 'backward_scaled'] as const;

/** Gradients that the optimizer took: clipping may be in them. */
export const PRE_STEP = GRADIENT_STAGES.indexOf('pre_step');

/** The place of a word; that of none where it is not known. */
export const gradientStage = (word: string): number =>
  Math.max(0, (GRADIENT_STAGES as readonly string[]).indexOf(word));

type Whole = (typeof WHOLE)[number];
type Float = (typeof FLOAT)[number];

export type MomentNumber = Whole | Float;

/**
 * The columns of numbers, all of one length. `samples` is -1 where it is unknown how many were consumed;
 * `lossScale` is divided out, and NaN where a scale may be in the values and is not known.
 */
export type MomentNumbers = Readonly<Record<Whole, Int32Array> & Record<Float, Float64Array>>;

export function numbersOf(
  whole: (name: Whole) => Int32Array,
  float: (name: Float) => Float64Array
): MomentNumbers {
  return { ...byName(WHOLE, whole), ...byName(FLOAT, float) };
}

const NAMES = byName([...WHOLE, ...FLOAT], name =>
  name.replace(/[A-Z]/g, letter => `_${letter.toLowerCase()}`)
);

/** What the stream calls a column: `nan_count` is `nanCount` here. */
export const streamName = (name: MomentNumber): string => NAMES[name];

export type { IMomentIndex, MeasuredTensors as MomentStat, MomentFilter, MomentStatistic };

/** A column by which tensors are grouped; 'capture' is what the pattern's groups find in the name. */
export type MomentColumn = MomentGroupBy[number];

/** Rows as columns of equal length, ordered by step. */
export interface IMomentRows extends MomentNumbers {
  readonly stat: readonly MeasuredTensors[];
  readonly names: readonly string[];
}

/** The key of a group: one value for each column of `by`, null where a name does not have it. */
export type MomentKey = readonly (string | number | null)[];

/** One row per step and group, ordered by group, then step. All arrays but `keys` have one length. */
export interface IMomentGroups {
  /** Key of each group, in natural order. */
  readonly keys: readonly MomentKey[];
  readonly group: Uint32Array;
  readonly step: Float64Array;
  readonly samples: Float64Array;
  /** The statistic, or the ratio of two; NaN where there is none. */
  readonly value: Float64Array;
  /** Finite values; 0 is no data. */
  readonly count: Float64Array;
  /** NaN and infinite values; NaN where it is not known how many, though there are some. */
  readonly nonFinite: Float64Array;
  /** How far the value may be off by the rounding of raw sums, in its own unit; 0 where it is exact. */
  readonly error: Float64Array;
  /** Sum of bits: `SCALED` if gradients may hold an unknown loss scale, `CLIPPED` if they may be clipped. */
  readonly scaled: Uint8Array;
  /** Groups and steps that there were before the largest were chosen and steps were left out. */
  readonly groupsTotal: number;
  readonly stepsTotal: number;
}

/** Bits of `scaled`. */
export const SCALED = 1;
export const CLIPPED = 2;

/** The columns of an answer that are float64. */
export const GROUP_FLOATS = ['step', 'samples', 'value', 'count', 'nonFinite', 'error'] as const;

/** Hears how many bytes of how many are read, while files are read for the first time. */
export type ReadingProgress = (done: number, total: number) => void;

/** Hears how many tasks of how many are done of a question that a cluster answers. */
export type TasksProgress = (done: number, of: number, where: IReadBy) => void;

/** The stream `moments` of one run. Queries reject with a `StoreError` that says what to do. */
export interface IMomentSource {
  /** With more rows than this in the stats asked for, `rows` brings none, or maybe with fewer. */
  readonly limitRows?: number;
  /**
   * What there is.
   * @param told - Called every second while this takes long.
   */
  index(signal?: AbortSignal, onProgress?: ReadingProgress): Promise<IMomentIndex>;
  /**
   * The rows, or null where they are too many to be brought here; ask for groups then.
   *
   * `where` says what is enough: rows that it does not match may be among the answer. The columns are the
   * asker's own, to keep or to hand to a worker.
   */
  rows(request: MomentRowsRequest, signal?: AbortSignal): Promise<IMomentRows | null>;
  /** Groups as the server computes them, from rows that stay there. */
  groups(request: MomentGroupsRequest, signal?: AbortSignal): Promise<IMomentGroups>;
  /** The cluster that answered questions about groups; null or absent where none did. */
  readonly readBy?: IReadBy | null;
  /** Call `told` every second while a cluster answers a question, until the function is called. */
  watchTasks?(told: TasksProgress): () => void;
}

type Numbers = Float64Array | Int32Array;

/** Bytes that one row takes. */
export const MOMENT_ROW_BYTES = WHOLE.length * 4 + FLOAT.length * 8;

/** The rows of one stat in typed arrays that grow, ordered by step. */
export class MomentColumns {
  constructor(readonly stat: MeasuredTensors) {}

  get length(): number {
    return this._length;
  }

  column(name: (typeof FLOAT)[number]): Float64Array {
    return this.floats[name].subarray(0, this._length);
  }

  /** Places in the names. Valid until the next change. */
  get nameId(): Int32Array {
    return this.whole.nameId.subarray(0, this._length);
  }

  get rank(): Int32Array {
    return this.whole.rank.subarray(0, this._length);
  }

  /** Put a row in behind those that are there; `sort` brings it to its step. */
  push(row: (name: MomentNumber) => number): void {
    if (this._length === this.whole.nameId.length) {
      // A little at a time: there may be a hundred megabytes, of which half would lie idle.
      this.resize(Math.max(1024, Math.ceil(this._length * 1.125)));
    }
    const at = this._length;
    for (const name of WHOLE) {
      this.whole[name][at] = row(name);
    }
    for (const name of FLOAT) {
      this.floats[name][at] = row(name);
    }
    this._length += 1;
  }

  /** Restore the order by step after rows from `from` on were added; rows of one step keep their order. */
  sort(from: number): void {
    const steps = this.column('step');
    const least = steps.subarray(from).reduce((low, step) => Math.min(low, step), Infinity);
    // What is before the rows that came is in order, so that only what they fall into moves.
    const start = lowerBound(steps.subarray(0, from), least, true);
    const tail = steps.slice(start);
    if (isSorted(tail)) {
      return;
    }
    const order = Uint32Array.from(tail, (_, row) => row);
    order.sort((a, b) => (tail[a] ?? 0) - (tail[b] ?? 0) || a - b);
    for (const name of WHOLE) {
      const old = this.whole[name].slice(start, this._length);
      this.whole[name].set(taken(old, new Int32Array(old.length), order), start);
    }
    for (const name of FLOAT) {
      const old = this.floats[name].slice(start, this._length);
      this.floats[name].set(taken(old, new Float64Array(old.length), order), start);
    }
  }

  /** Keep only the rows at these places, in this order, and give memory back. */
  take(order: Uint32Array): void {
    const capacity = Math.max(1024, order.length);
    for (const name of WHOLE) {
      this.whole[name] = moved(this.whole[name], new Int32Array(capacity), order);
    }
    for (const name of FLOAT) {
      this.floats[name] = moved(this.floats[name], new Float64Array(capacity), order);
    }
    this._length = order.length;
  }

  /** Copies of the rows of these steps; whoever asked may keep or hand on their memory. */
  rows(names: readonly string[], [first, last]: readonly [number, number]): IMomentRows {
    const steps = this.column('step');
    const [from, to] = [lowerBound(steps, first), lowerBound(steps, last, true)];
    return {
      stat: new Array<MeasuredTensors>(to - from).fill(this.stat),
      names,
      ...numbersOf(
        name => this.whole[name].slice(from, to),
        name => this.floats[name].slice(from, to)
      )
    };
  }

  private resize(capacity: number): void {
    for (const name of WHOLE) {
      this.whole[name] = grown(this.whole[name], new Int32Array(capacity));
    }
    for (const name of FLOAT) {
      this.floats[name] = grown(this.floats[name], new Float64Array(capacity));
    }
  }

  private readonly whole = byName(WHOLE, () => new Int32Array(0));
  private readonly floats = byName(FLOAT, () => new Float64Array(0));
  private _length = 0;
}

/** First place whose entry is not before `value`, or with `past` the first whose entry is beyond it. */
export function lowerBound(sorted: ArrayLike<number>, value: number, past = false): number {
  return firstIndex(sorted.length, at => {
    const entry = sorted[at] ?? 0;
    return !(entry < value || (past && entry === value));
  });
}

/** Rows of several stats as one set, ordered by step; rows of one step in the order of the sets. */
export function joinRows(parts: readonly IMomentRows[]): IMomentRows {
  const [only] = parts;
  if (only !== undefined && parts.length === 1) {
    return only;
  }
  const stat = parts.flatMap(part => part.stat);
  const step = Float64Array.from(parts.flatMap(part => Array.from(part.step)));
  const order = Uint32Array.from(step, (_, row) => row).sort(
    (a, b) => (step[a] ?? 0) - (step[b] ?? 0) || a - b
  );
  const gather = <T extends Numbers>(of: (part: IMomentRows) => T, room: T): T => {
    const all = parts.flatMap(part => Array.from(of(part)));
    order.forEach((from, to) => {
      room[to] = all[from] ?? 0;
    });
    return room;
  };
  const whole = (name: (typeof WHOLE)[number]): Int32Array =>
    gather(part => part[name], new Int32Array(order.length));
  const float = (name: (typeof FLOAT)[number]): Float64Array =>
    gather(part => part[name], new Float64Array(order.length));
  return {
    stat: Array.from(order, row => stat[row] ?? 'param'),
    names: only?.names ?? [],
    ...numbersOf(whole, float)
  };
}

function grown<T extends Numbers>(old: T, room: T): T {
  room.set(old);
  giveBack(old.buffer);
  return room;
}

function taken<T extends Numbers>(old: T, room: T, order: Uint32Array): T {
  order.forEach((from, to) => {
    room[to] = old[from] ?? 0;
  });
  return room;
}

/** As `taken`, of what is not needed any more. */
function moved<T extends Numbers>(old: T, room: T, order: Uint32Array): T {
  taken(old, room, order);
  giveBack(old.buffer);
  return room;
}

function isSorted(steps: Float64Array): boolean {
  return steps.every((step, at) => at === 0 || step >= (steps[at - 1] ?? 0));
}

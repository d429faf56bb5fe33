import { byName } from '../protocol/records';

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

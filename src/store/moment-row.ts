import { byName } from '../protocol/records';

/** Columns of the stream `moments` that are whole numbers here, and those of float64. `nameId` is a name's place among the names. */
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

/** A column of numbers. */
export type MomentNumber = Whole | Float;

/**
 * The columns of numbers, all of one length. `samples` is -1 where nobody said how many were consumed; `lossScale` is divided out, and NaN where a scale may be in
 * the values and is not known.
 */
export type MomentNumbers = Readonly<Record<Whole, Int32Array> & Record<Float, Float64Array>>;

/** Make every column of numbers. */
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

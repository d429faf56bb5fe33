import VIEWS_SCHEMA from '#protocol/views.schema.json';
import type { MeasuredTensors, MomentStatistic } from './views.generated';

/** What can be measured, in the order in which it is offered. */
export const MOMENT_STATS: readonly MeasuredTensors[] = (VIEWS_SCHEMA.$defs?.['Measured']?.enum ??
  []) as MeasuredTensors[];

/** Merged moments of groups; one entry a group. Columns that a statistic does not need may be empty. */
export interface IMergedMoments {
  /** Finite values; 0 is no data. */
  readonly count: Float64Array;
  readonly mean: Float64Array;
  /** Sums of deviations from the mean to the second, third and fourth power. */
  readonly m2: Float64Array;
  readonly m3: Float64Array;
  readonly m4: Float64Array;
  readonly min: Float64Array;
  readonly max: Float64Array;
  /** NaN and infinite values; NaN where it is not known how many. */
  readonly nonFinite: Float64Array;
  /** Values of a size below 1e-8; NaN where it is not known how many. */
  readonly nearZero: Float64Array;
  /** How far `m2` and `m4` may be off by the rounding of raw sums; empty where no row has any. */
  readonly m2Error: Float64Array;
  readonly m4Error: Float64Array;
}

type Read = (of: IMergedMoments, group: number) => number;

interface IReading {
  /** The statistic; NaN where there is none. */
  readonly value: Read;
  /**
   * How far it may be off by the rounding of raw sums, in its own unit. Only asked where there is rounding.
   */
  readonly error: Read;
  /** Highest power of the deviations that it is made of. */
  readonly power: 0 | 1 | 2 | 4;
}

// A column that the statistic does not need may be empty; those that it reads have an entry for each group.
const at = (column: Float64Array, group: number): number => column[group] as number;
const exact: Read = () => 0;

const column =
  (name: keyof IMergedMoments): Read =>
  (of, group) =>
    at(of[name], group);

/** M2 / n. A negative M2 is rounding and counts as 0. */
const second: Read = (of, group) => {
  const m2 = at(of.m2, group);
  return (m2 < 0 ? 0 : m2) / at(of.count, group);
};

/** Variance of the population. Moments are about zero where the mean is not known, and say nothing of it. */
const momentVariance: Read = (of, group) =>
  Number.isNaN(at(of.mean, group)) ? Number.NaN : second(of, group);

const momentStd: Read = (of, group) => Math.sqrt(momentVariance(of, group));

/**
 * Mean square, variance + mean²; of moments about zero M2 / n. Infinite sums: the size is infinite though the
 * spread is not known.
 */
const square: Read = (of, group) => {
  const mean = at(of.mean, group);
  return mean === Infinity || mean === -Infinity
    ? Infinity
    : second(of, group) + (Number.isNaN(mean) ? 0 : mean * mean);
};

/** Root of the sum of the squares, √(M2 + n mean²). */
const momentL2: Read = (of, group) => Math.sqrt(at(of.count, group) * square(of, group));

const momentRms: Read = (of, group) => Math.sqrt(square(of, group));

/** Skewness, (M3 / n) / variance^1.5; none where all values are the same. */
const momentSkewness: Read = (of, group) => {
  const variance = momentVariance(of, group);
  return variance > 0 ? at(of.m3, group) / at(of.count, group) / variance ** 1.5 : Number.NaN;
};

/** Kurtosis, (M4 / n) / variance²; 3 for a normal distribution, none where all values are the same. */
const momentKurtosis: Read = (of, group) => {
  const variance = momentVariance(of, group);
  return variance > 0 ? at(of.m4, group) / at(of.count, group) / (variance * variance) : Number.NaN;
};

/** Share of all values, also of those that are not finite. */
const momentNearZero: Read = (of, group) =>
  at(of.nearZero, group) / (at(of.count, group) + at(of.nonFinite, group));

// What Σx² may be off by: the contract's `m2_error` is three times that.
const squaresError: Read = (of, group) => at(of.m2Error, group) / 3;

/** Of the mean: r |mean| for one rounding r, bounded by r RMS. */
const meanError: Read = (of, group) => squaresError(of, group) / at(of.count, group) / momentRms(of, group);

const varianceError: Read = (of, group) => at(of.m2Error, group) / at(of.count, group);

/** Of a root: the farther of the two ends of the interval. */
function rootError(squared: number, off: number): number {
  const root = Math.sqrt(squared);
  return Math.max(root - Math.sqrt(Math.max(0, squared - off)), Math.sqrt(squared + off) - root);
}

const stdError: Read = (of, group) => rootError(momentVariance(of, group), varianceError(of, group));

const rmsError: Read = (of, group) =>
  rootError(square(of, group), squaresError(of, group) / at(of.count, group));

const l2Error: Read = (of, group) =>
  rootError(at(of.count, group) * square(of, group), squaresError(of, group));

/** Of the variance, relative to itself. */
const spread: Read = (of, group) => varianceError(of, group) / momentVariance(of, group);

/**
 * Of the skewness: M3 of raw sums is off by at most 6 r n |mean|³ where the mean is large, and twice the
 * geometric mean of the two errors that are kept, 2 √14 r n |mean|³, is above it.
 */
const skewnessError: Read = (of, group) => {
  const m3 = 2 * Math.sqrt(squaresError(of, group) * at(of.m4Error, group));
  return (
    m3 / at(of.count, group) / momentVariance(of, group) ** 1.5 +
    1.5 * spread(of, group) * Math.abs(momentSkewness(of, group))
  );
};

/** Of the kurtosis: that of M4, and twice the relative one of the variance. */
const kurtosisError: Read = (of, group) =>
  at(of.m4Error, group) / at(of.count, group) / momentVariance(of, group) ** 2 +
  2 * spread(of, group) * Math.abs(momentKurtosis(of, group));

const READINGS: Readonly<Record<MomentStatistic, IReading>> = {
  l2: { value: momentL2, error: l2Error, power: 2 },
  rms: { value: momentRms, error: rmsError, power: 2 },
  mean: { value: column('mean'), error: meanError, power: 1 },
  std: { value: momentStd, error: stdError, power: 2 },
  variance: { value: momentVariance, error: varianceError, power: 2 },
  skewness: { value: momentSkewness, error: skewnessError, power: 4 },
  kurtosis: { value: momentKurtosis, error: kurtosisError, power: 4 },
  excess_kurtosis: { value: (of, group) => momentKurtosis(of, group) - 3, error: kurtosisError, power: 4 },
  min: { value: column('min'), error: exact, power: 0 },
  max: { value: column('max'), error: exact, power: 0 },
  near_zero_share: { value: momentNearZero, error: exact, power: 0 },
  nonfinite: { value: column('nonFinite'), error: exact, power: 0 }
};

/** Every statistic by name, in the order in which they are offered. */
export const MOMENT_STATISTICS = Object.keys(READINGS) as readonly MomentStatistic[];

/**
 * Highest power of the deviations that a statistic needs: 0 is none, 1 the mean alone; with rounding also
 * those of its bounds.
 */
export function powerOf(statistic: MomentStatistic): number {
  return READINGS[statistic].power;
}

/**
 * One statistic of every group, as the contract reads it (population statistics).
 *
 * @returns NaN where there is no answer: no data, or skewness and kurtosis of values that are all the same.
 * `nonfinite` is always a count, and the share near zero is of all values.
 */
export function readMoments(of: IMergedMoments, statistic: MomentStatistic): Float64Array {
  const read = READINGS[statistic].value;
  const always = statistic === 'nonfinite' || statistic === 'near_zero_share';
  const values = new Float64Array(of.count.length);
  for (let group = 0; group < values.length; group += 1) {
    values[group] = at(of.count, group) > 0 || always ? read(of, group) : Number.NaN;
  }
  return values;
}

/**
 * How far that statistic may be off by the rounding of raw sums, in its own unit: 0 where it is exact,
 * Infinity where nothing of it is left.
 */
function errorOf(of: IMergedMoments, group: number, statistic: MomentStatistic): number {
  if (of.m2Error.length === 0 || !(at(of.m2Error, group) > 0 || at(of.m4Error, group) > 0)) {
    return 0;
  }
  const error = READINGS[statistic].error(of, group);
  return Number.isNaN(error) ? Infinity : error;
}

export function readMomentErrors(of: IMergedMoments, statistic: MomentStatistic): Float64Array {
  return of.count.map((_, group) => errorOf(of, group, statistic));
}

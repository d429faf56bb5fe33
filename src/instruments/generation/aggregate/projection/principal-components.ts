import { BLOCK, leadingEigenvectors } from './leading-eigenvectors';
import { featuresOf, type IFeatures, type IVectors } from './features';

/** Points along the directions in which they vary most. */
export interface IPrincipal {
  /** The points about their mean, without those that are not finite. */
  readonly features: IFeatures;
  /** `[rows of features, components]`, row-major. */
  readonly scores: Float64Array;
  readonly components: number;
  /** Of each component the part of the whole variance that it explains, 0 to 1. */
  readonly ratios: Float64Array;
  /** Each component's direction among the features, `[components, columns]`, length 1. */
  readonly directions: Float64Array;
  /** How far the search ended from the exact answer; see `leadingEigenvectors`. Above the tolerance it was given up. */
  readonly residual: number;
}

/**
 * Principal components of points, as scikit-learn's `PCA` gives them after `StandardScaler` where standardising is asked for. Only the first ones are looked for: the whole
 * variance, which the ratios need, is known without the others.
 *
 * @param components - How many. Those that points of a lower rank lack are 0.
 * @param tolerance - See `leadingEigenvectors`.
 */
export function principalComponents(
  points: IVectors,
  components: number,
  standardise: boolean,
  tolerance?: number
): IPrincipal {
  const features = featuresOf(points, standardise);
  const { rows, columns, variance } = features;
  const { values, vectors, residual } = leadingEigenvectors(
    (block, into) => multiplyCovariance(features, block, into),
    columns,
    Math.min(components, columns),
    tolerance
  );
  const directions = new Float64Array(components * columns);
  vectors.forEach((vector, at) => directions.set(pointed(vector), at * columns));
  return {
    features,
    scores: scoresOf(features, directions, components),
    components,
    ratios: Float64Array.from({ length: components }, (_, at) =>
      variance > 0 && rows > 1 ? (values[at] ?? 0) / variance : 0
    ),
    directions,
    residual
  };
}

/** A direction with the sign by which its greatest entry is above 0, as scikit-learn has it. */
function pointed(vector: Float64Array): Float64Array {
  const greatest = vector.reduce((most, value) => (Math.abs(value) > Math.abs(most) ? value : most), 0);
  return greatest < 0 ? vector.map(value => -value) : vector;
}

/** How far each point lies along each direction. */
function scoresOf(
  { rows, columns, values }: IFeatures,
  directions: Float64Array,
  components: number
): Float64Array {
  const scores = new Float64Array(rows * components);
  for (let component = 0; component < components; component += 1) {
    const direction = directions.subarray(component * columns, (component + 1) * columns);
    for (let row = 0; row < rows; row += 1) {
      let sum = 0;
      for (let column = 0, at = row * columns; column < columns; column += 1, at += 1) {
        sum += values[at]! * direction[column]!;
      }
      scores[row * components + component] = sum;
    }
  }
  return scores;
}

/**
 * Multiply the covariance matrix with a block of vectors in one pass over the points, two at a time: what a row is needed for is done while it lies in the
 * processor's first cache.
 */
function multiplyCovariance(
  { rows, columns, values }: IFeatures,
  block: Float64Array,
  into: Float64Array
): void {
  into.fill(0);
  for (let row = 0; row < rows; row += 2) {
    const from = row * columns;
    // The last of an odd number is paired with itself, and counts half.
    const beside = row + 1 < rows ? from + columns : from;
    const share = row + 1 < rows ? 1 : 0.5;
    let [a, b, c, d, e, f, g, h] = [0, 0, 0, 0, 0, 0, 0, 0];
    for (let column = 0, at = 0; column < columns; column += 1, at += BLOCK) {
      const x = values[from + column]!;
      const y = values[beside + column]!;
      const p = block[at]!;
      const q = block[at + 1]!;
      const r = block[at + 2]!;
      const s = block[at + 3]!;
      a += x * p;
      b += x * q;
      c += x * r;
      d += x * s;
      e += y * p;
      f += y * q;
      g += y * r;
      h += y * s;
    }
    for (let column = 0, at = 0; column < columns; column += 1, at += BLOCK) {
      const x = values[from + column]! * share;
      const y = values[beside + column]! * share;
      into[at]! += x * a + y * e;
      into[at + 1]! += x * b + y * f;
      into[at + 2]! += x * c + y * g;
      into[at + 3]! += x * d + y * h;
    }
  }
  const denominator = Math.max(1, rows - 1);
  for (let at = 0; at < into.length; at += 1) {
    into[at]! /= denominator;
  }
}

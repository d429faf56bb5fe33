import { SeededRandom } from '../../../protocol/seeded-random';
import { featuresOf, type IFeatures, type IVectors } from './features';

/** Vectors that one pass over the data multiplies. */
const BLOCK = 4;
/** Directions retained before the search restarts from the better half of them; more if more are wanted. */
const MOST_DIRECTIONS = 96;
/** Directions after which it is looked whether they are enough. */
const LOOKS = [8, 12, 16, 20, 24, 28, 32, 40, 48, 64];
/** Passes over the data after which the search is given up; distinct directions need 4 to 20. */
const MOST_PASSES = 120;

/** Multiply a symmetric matrix with `BLOCK` vectors, `[size, BLOCK]` row-major. */
type Multiply = (block: Float64Array, into: Float64Array) => void;

/** The greatest eigenvalues of a matrix, and their vectors. */
interface ILeading {
  /** Descending. */
  readonly values: Float64Array;
  /** Of each value its vector, of length 1. */
  readonly vectors: readonly Float64Array[];
  /** How far a vector is from being one, at worst, as a part of the greatest value: |A v - λ v| / λ₁. */
  readonly residual: number;
}

/**
 * Find the greatest eigenvalues of a symmetric matrix without negative ones, which is known by its products
 * only: block Lanczos with full orthogonalisation and thick restarts (Golub and Van Loan, Matrix
 * Computations, 10.3; Wu and Simon, SIAM J. Matrix Anal. Appl. 22, 2000).
 * @param count - How many are wanted; fewer come back where the matrix has a lower rank.
 */
export function leadingEigenvectors(
  multiply: Multiply,
  size: number,
  count: number,
  tolerance = 1e-6
): ILeading {
  const random = new SeededRandom(1);
  const most = Math.max(MOST_DIRECTIONS, 2 * count);
  let basis: Float64Array[] = [];
  let images: Float64Array[] = [];
  let next = orthonormal(
    Array.from({ length: Math.min(BLOCK, size) }, () =>
      Float64Array.from({ length: size }, () => random.centred())
    ),
    basis,
    0
  );
  const [block, product] = [new Float64Array(size * BLOCK), new Float64Array(size * BLOCK)];
  for (let pass = 1; ; pass += 1) {
    block.fill(0);
    next.forEach((vector, at) => {
      for (let row = 0; row < size; row += 1) {
        block[row * BLOCK + at] = vector[row]!;
      }
    });
    multiply(block, product);
    const fresh = next.map((_, at) =>
      Float64Array.from({ length: size }, (__, row) => product[row * BLOCK + at]!)
    );
    basis = [...basis, ...next];
    images = [...images, ...fresh];
    const greatest = Math.max(0, ...fresh.map(lengthOf));
    next = basis.length < size ? orthonormal(fresh, basis, 1e-12 * greatest) : [];
    const isLast = next.length === 0 || pass === MOST_PASSES;
    const before = basis.length - fresh.length;
    const isFull = basis.length >= most;
    if (isLast || isFull || LOOKS.some(each => before < each && basis.length >= each)) {
      const found = ritz(basis, images, isLast ? count : most / 2);
      const leading = leadingOf(found, count);
      if (isLast || (found.values.length >= count && leading.residual <= tolerance)) {
        return leading;
      }
      if (isFull) {
        [basis, images] = [found.vectors, found.images];
      }
    }
  }
}

interface IRitz {
  readonly values: Float64Array;
  readonly vectors: Float64Array[];
  /** What the matrix makes of each vector. */
  readonly images: Float64Array[];
}

/** The best that the directions so far can say (Rayleigh and Ritz). */
function ritz(basis: readonly Float64Array[], images: readonly Float64Array[], most: number): IRitz {
  const size = basis.length;
  const small = new Float64Array(size * size);
  basis.forEach((vector, row) => {
    for (let column = row; column < size; column += 1) {
      const value = dot(vector, images[column]!);
      small[row * size + column] = value;
      small[column * size + row] = value;
    }
  });
  const { values, vectors } = symmetricEigen(small, size);
  const count = Math.min(most, size);
  const mixed = (of: readonly Float64Array[], at: number): Float64Array => {
    const sum = new Float64Array(of[0]!.length);
    of.forEach((vector, part) => add(sum, vector, vectors[at * size + part]!));
    return sum;
  };
  const places = Array.from({ length: count }, (_, at) => at);
  return {
    values: values.slice(0, count),
    vectors: places.map(at => mixed(basis, at)),
    images: places.map(at => mixed(images, at))
  };
}

function leadingOf({ values, vectors, images }: IRitz, count: number): ILeading {
  const greatest = values[0] ?? 0;
  const residuals = vectors.slice(0, count).map((vector, at) => {
    const apart = images[at]!.slice();
    add(apart, vector, -values[at]!);
    return greatest > 0 ? lengthOf(apart) / greatest : 0;
  });
  return {
    values: values.slice(0, count).map(value => Math.max(0, value)),
    vectors: vectors.slice(0, count),
    residual: Math.max(0, ...residuals)
  };
}

/** Orthonormal vectors of what lies outside a basis; remainders no longer than `least` are left out. */
function orthonormal(
  vectors: readonly Float64Array[],
  basis: readonly Float64Array[],
  least: number
): Float64Array[] {
  const found: Float64Array[] = [];
  for (const vector of vectors) {
    const rest = vector.slice();
    // Twice: what the first leaves by rounding is no longer small beside what is left.
    for (let turn = 0; turn < 2; turn += 1) {
      for (const each of [...basis, ...found]) {
        add(rest, each, -dot(each, rest));
      }
    }
    const length = lengthOf(rest);
    if (length > least) {
      found.push(rest.map(value => value / length));
    }
  }
  return found;
}

function dot(a: Float64Array, b: Float64Array): number {
  let sum = 0;
  for (let at = 0; at < a.length; at += 1) {
    sum += a[at]! * b[at]!;
  }
  return sum;
}

function add(to: Float64Array, vector: Float64Array, times: number): void {
  for (let at = 0; at < to.length; at += 1) {
    to[at]! += times * vector[at]!;
  }
}

const lengthOf = (vector: Float64Array): number => Math.sqrt(dot(vector, vector));

/** Sweeps that Jacobi's method gets; it needs about 8. */
const MOST_SWEEPS = 60;

/**
 * Eigenvalues and eigenvectors of a symmetric matrix by Jacobi's rotations (Golub and Van Loan, Matrix
 * Computations, 8.5). For matrices of up to about a hundred rows.
 * @param matrix - `[size, size]`, row-major. It is written over.
 * @returns Eigenvalues, descending, and the eigenvector of each as a row of `[size, size]`.
 */
export function symmetricEigen(
  matrix: Float64Array,
  size: number
): { readonly values: Float64Array; readonly vectors: Float64Array } {
  const rotated = new Float64Array(size * size);
  for (let at = 0; at < size; at += 1) {
    rotated[at * size + at] = 1;
  }
  for (let sweep = 0; sweep < MOST_SWEEPS && isCoupled(matrix, size); sweep += 1) {
    for (let p = 0; p < size; p += 1) {
      for (let q = p + 1; q < size; q += 1) {
        annihilate(matrix, rotated, size, p, q);
      }
    }
  }
  const order = Array.from({ length: size }, (_, at) => at).sort(
    (a, b) => matrix[b * size + b]! - matrix[a * size + a]! || a - b
  );
  const values = Float64Array.from(order, at => matrix[at * size + at]!);
  const vectors = new Float64Array(size * size);
  order.forEach((at, to) => vectors.set(rotated.subarray(at * size, (at + 1) * size), to * size));
  return { values, vectors };
}

function isCoupled(matrix: Float64Array, size: number): boolean {
  let offDiagonal = 0;
  let along = 0;
  for (let row = 0; row < size; row += 1) {
    along += matrix[row * size + row]! ** 2;
    for (let column = row + 1; column < size; column += 1) {
      offDiagonal += matrix[row * size + column]! ** 2;
    }
  }
  return offDiagonal > 1e-28 * along;
}

/** Rotate so that the entry of a row and a column becomes 0. Walks rows only: the matrix is symmetric. */
function annihilate(matrix: Float64Array, rotated: Float64Array, size: number, p: number, q: number): void {
  const offDiagonal = matrix[p * size + q]!;
  const [first, second] = [matrix[p * size + p]!, matrix[q * size + q]!];
  if (Math.abs(offDiagonal) <= 1e-17 * Math.sqrt(Math.abs(first * second)) || offDiagonal === 0) {
    return;
  }
  const ratio = (second - first) / (2 * offDiagonal);
  const tangent = (ratio >= 0 ? 1 : -1) / (Math.abs(ratio) + Math.sqrt(1 + ratio * ratio));
  const cosine = 1 / Math.sqrt(1 + tangent * tangent);
  const sine = tangent * cosine;
  for (let at = 0; at < size; at += 1) {
    const [left, right] = [matrix[p * size + at]!, matrix[q * size + at]!];
    matrix[p * size + at] = cosine * left - sine * right;
    matrix[q * size + at] = sine * left + cosine * right;
    const [from, to] = [rotated[p * size + at]!, rotated[q * size + at]!];
    rotated[p * size + at] = cosine * from - sine * to;
    rotated[q * size + at] = sine * from + cosine * to;
  }
  for (let at = 0; at < size; at += 1) {
    matrix[at * size + p] = matrix[p * size + at]!;
    matrix[at * size + q] = matrix[q * size + at]!;
  }
  matrix[p * size + p] = first - tangent * offDiagonal;
  matrix[q * size + q] = second + tangent * offDiagonal;
  matrix[p * size + q] = 0;
  matrix[q * size + p] = 0;
}

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
  /** How far the search ended from the exact answer; above the tolerance it was given up. */
  readonly residual: number;
}

/**
 * Principal components of points, as scikit-learn's `PCA` gives them after `StandardScaler` where
 * standardising is asked for. Only the first ones are looked for: the whole variance, which the ratios need,
 * is known without the others.
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
 * Multiply the covariance matrix with a block of vectors in one pass over the points, two at a time: what a
 * row is needed for is done while it lies in the processor's first cache.
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
    const nextRow = row + 1 < rows ? from + columns : from;
    const share = row + 1 < rows ? 1 : 0.5;
    let [a, b, c, d, e, f, g, h] = [0, 0, 0, 0, 0, 0, 0, 0];
    for (let column = 0, at = 0; column < columns; column += 1, at += BLOCK) {
      const x = values[from + column]!;
      const y = values[nextRow + column]!;
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
      const y = values[nextRow + column]! * share;
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

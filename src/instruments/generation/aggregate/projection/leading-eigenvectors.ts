import { SeededRandom } from '../../../../protocol/seeded-random';
import { symmetricEigen } from './symmetric-eigen';

/** Vectors that one pass over the data multiplies. */
export const BLOCK = 4;
/** Directions that are held before the search goes on from the better half of them; more where more are wanted. */
const MOST_DIRECTIONS = 96;
/** Directions after which it is looked whether they are enough. */
const LOOKS = [8, 12, 16, 20, 24, 28, 32, 40, 48, 64];
/** Passes over the data after which the search is given up; data with directions of their own need 4 to 20. */
const MOST_PASSES = 120;

/** Multiply a symmetric matrix with `BLOCK` vectors, `[size, BLOCK]` row-major. */
export type Multiply = (block: Float64Array, into: Float64Array) => void;

/** The greatest eigenvalues of a matrix, and their vectors. */
export interface ILeading {
  /** Descending. */
  readonly values: Float64Array;
  /** Of each value its vector, of length 1. */
  readonly vectors: readonly Float64Array[];
  /** How far a vector is from being one, at worst, as a part of the greatest value: |A v - λ v| / λ₁. */
  readonly residual: number;
}

/**
 * Find the greatest eigenvalues of a symmetric matrix without negative ones, which is known by its products only: block Lanczos with full orthogonalisation and thick
 * restarts (Golub and Van Loan, Matrix Computations, 10.3; Wu and Simon, SIAM J. Matrix Anal. Appl. 22, 2000).
 *
 * @param size - Rows of the matrix.
 * @param count - How many are wanted; fewer come back where the matrix has a lower rank.
 * @param tolerance - The residual at which the search ends.
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

/** What vectors have beside a basis, as vectors of length 1 at right angles to it and to one another; those that have no more than `least` are left out. */
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

/** Sweeps that Jacobi's method gets; it needs about 8. */
const MOST_SWEEPS = 60;

/**
 * Eigenvalues and eigenvectors of a symmetric matrix by Jacobi's rotations (Golub and Van Loan, Matrix Computations, 8.5). For matrices of up to about a hundred rows.
 *
 * @param matrix - `[size, size]`, row-major. It is written over.
 * @returns Eigenvalues, descending, and the eigenvector of each as a row of `[size, size]`.
 */
export function symmetricEigen(
  matrix: Float64Array,
  size: number
): { readonly values: Float64Array; readonly vectors: Float64Array } {
  const turned = new Float64Array(size * size);
  for (let at = 0; at < size; at += 1) {
    turned[at * size + at] = 1;
  }
  for (let sweep = 0; sweep < MOST_SWEEPS && isCoupled(matrix, size); sweep += 1) {
    for (let p = 0; p < size; p += 1) {
      for (let q = p + 1; q < size; q += 1) {
        annihilate(matrix, turned, size, p, q);
      }
    }
  }
  const order = Array.from({ length: size }, (_, at) => at).sort(
    (a, b) => matrix[b * size + b]! - matrix[a * size + a]! || a - b
  );
  const values = Float64Array.from(order, at => matrix[at * size + at]!);
  const vectors = new Float64Array(size * size);
  order.forEach((at, to) => vectors.set(turned.subarray(at * size, (at + 1) * size), to * size));
  return { values, vectors };
}

function isCoupled(matrix: Float64Array, size: number): boolean {
  let beside = 0;
  let along = 0;
  for (let row = 0; row < size; row += 1) {
    along += matrix[row * size + row]! ** 2;
    for (let column = row + 1; column < size; column += 1) {
      beside += matrix[row * size + column]! ** 2;
    }
  }
  return beside > 1e-28 * along;
}

/** Rotate so that the entry of a row and a column becomes 0. Only rows are walked along: the matrix is symmetric. */
function annihilate(matrix: Float64Array, turned: Float64Array, size: number, p: number, q: number): void {
  const beside = matrix[p * size + q]!;
  const [first, second] = [matrix[p * size + p]!, matrix[q * size + q]!];
  if (Math.abs(beside) <= 1e-17 * Math.sqrt(Math.abs(first * second)) || beside === 0) {
    return;
  }
  const ratio = (second - first) / (2 * beside);
  const tangent = (ratio >= 0 ? 1 : -1) / (Math.abs(ratio) + Math.sqrt(1 + ratio * ratio));
  const cosine = 1 / Math.sqrt(1 + tangent * tangent);
  const sine = tangent * cosine;
  for (let at = 0; at < size; at += 1) {
    const [left, right] = [matrix[p * size + at]!, matrix[q * size + at]!];
    matrix[p * size + at] = cosine * left - sine * right;
    matrix[q * size + at] = sine * left + cosine * right;
    const [from, to] = [turned[p * size + at]!, turned[q * size + at]!];
    turned[p * size + at] = cosine * from - sine * to;
    turned[q * size + at] = sine * from + cosine * to;
  }
  for (let at = 0; at < size; at += 1) {
    matrix[at * size + p] = matrix[p * size + at]!;
    matrix[at * size + q] = matrix[q * size + at]!;
  }
  matrix[p * size + p] = first - tangent * beside;
  matrix[q * size + q] = second + tangent * beside;
  matrix[p * size + q] = 0;
  matrix[q * size + p] = 0;
}

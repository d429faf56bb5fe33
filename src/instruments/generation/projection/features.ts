/** How points of a plane are turned so that they lie as near as can be to others. */
export interface IRotation {
  /** Row-major 2 × 2, orthogonal: a point as a row times it is turned. */
  readonly matrix: readonly [number, number, number, number];
  /** Degrees from -180 to 180, of the turn that is left when it is mirrored first. */
  readonly degrees: number;
  readonly mirrored: boolean;
  /**
   * What is left: the sum of squared distances after both were put about their mean and scaled to a size of
   * 1, as `scipy.spatial.procrustes` has it. 0 is the same shape, 1 has nothing in common.
   */
  readonly residual: number;
}

const STAYS: IRotation = { matrix: [1, 0, 0, 1], degrees: 0, mirrored: false, residual: 0 };

/**
 * Turn, and mirror where that is better, points onto others: the orthogonal Procrustes problem (Schönemann,
 * Psychometrika 31, 1966), which in a plane is solved by an angle. Sizes are left as they are.
 * @param points - `[n, 2]`, row-major.
 * @param onto - The same points elsewhere. Pairs of which one is NaN do not count.
 */
export function rotateOnto(points: Float64Array, onto: Float64Array): IRotation {
  const [from, to] = [aboutMean(points, onto), aboutMean(onto, points)];
  let [xx, xy, yx, yy, sizeFrom, sizeTo] = [0, 0, 0, 0, 0, 0];
  for (let at = 0; at < from.length; at += 2) {
    const [x, y, u, v] = [from[at]!, from[at + 1]!, to[at]!, to[at + 1]!];
    xx += x * u;
    xy += x * v;
    yx += y * u;
    yy += y * v;
    sizeFrom += x * x + y * y;
    sizeTo += u * u + v * v;
  }
  if (sizeFrom === 0 || sizeTo === 0) {
    return STAYS;
  }
  // What a turn and what a mirror with a turn would reach of the trace of the product.
  const rotated = Math.sqrt((xx + yy) ** 2 + (xy - yx) ** 2);
  const mirroredToo = Math.sqrt((xx - yy) ** 2 + (xy + yx) ** 2);
  const mirrored = mirroredToo > rotated * (1 + 1e-12);
  const reach = mirrored ? mirroredToo : rotated;
  if (reach === 0) {
    return { ...STAYS, residual: 1 };
  }
  const [cosine, sine] = mirrored
    ? [(xx - yy) / reach, (xy + yx) / reach]
    : [(xx + yy) / reach, (xy - yx) / reach];
  return {
    // Mirrored: y changes its sign first.
    matrix: mirrored ? [cosine, sine, sine, -cosine] : [cosine, sine, -sine, cosine],
    degrees: (Math.atan2(sine, cosine) * 180) / Math.PI,
    mirrored,
    residual: Math.max(0, 1 - reach ** 2 / (sizeFrom * sizeTo))
  };
}

/** Turn points about the origin. */
export function rotated(points: Float64Array, { matrix: [a, b, c, d] }: IRotation): Float64Array {
  const found = new Float64Array(points.length);
  for (let at = 0; at < points.length; at += 2) {
    const [x, y] = [points[at]!, points[at + 1]!];
    found[at] = x * a + y * c;
    found[at + 1] = x * b + y * d;
  }
  return found;
}

/** Those points that are known in both layouts, about their mean. */
function aboutMean(points: Float64Array, other: Float64Array): Float64Array {
  const known: number[] = [];
  let [x, y] = [0, 0];
  for (let at = 0; at < points.length; at += 2) {
    if (Number.isFinite(points[at]! + points[at + 1]! + other[at]! + other[at + 1]!)) {
      known.push(at);
      x += points[at]!;
      y += points[at + 1]!;
    }
  }
  return Float64Array.from(
    known.flatMap(at => [points[at]! - x / known.length, points[at + 1]! - y / known.length])
  );
}

/** Points as rows of numbers: `values` is row-major, `[rows, columns]`. */
export interface IVectors {
  readonly rows: number;
  readonly columns: number;
  readonly values: Float32Array;
}

/** Points about their mean. */
export interface IFeatures extends IVectors {
  /** Number of each retained row among the points that came, ascending; non-finite rows are left out. */
  readonly kept: Int32Array;
  /** Features that are the same in every point: they add nothing. */
  readonly constant: number;
  /** Sum of the variances of all features (n - 1 in the denominator), after standardising if asked for. */
  readonly variance: number;
}

/**
 * Put points about their mean, and divide each feature by its deviation where that is asked for:
 * scikit-learn's `StandardScaler`, which takes n, not n - 1, as the denominator, and leaves features that do
 * not vary undivided.
 * @returns In float32; sums are in float64.
 */
export function featuresOf(points: IVectors, standardise: boolean): IFeatures {
  const { columns } = points;
  const { kept, mean } = finiteRows(points);
  const rows = kept.length;
  const values = new Float32Array(rows * columns);
  const squares = new Float64Array(columns);
  for (let row = 0, to = 0; row < rows; row += 1) {
    const from = kept[row]! * columns;
    for (let column = 0; column < columns; column += 1, to += 1) {
      const apart = points.values[from + column]! - mean[column]!;
      squares[column]! += apart * apart;
      values[to] = apart;
    }
  }
  const scale = new Float64Array(columns).fill(1);
  let constant = 0;
  let variance = 0;
  for (let column = 0; column < columns; column += 1) {
    const spread = squares[column]! / Math.max(1, rows);
    const isConstant = spread <= roundings(rows, spread, mean[column]!);
    scale[column] = isConstant ? 0 : standardise ? 1 / Math.sqrt(spread) : 1;
    constant += isConstant ? 1 : 0;
    variance += (squares[column]! * scale[column]! ** 2) / Math.max(1, rows - 1);
  }
  if (standardise || constant > 0) {
    for (let row = 0, at = 0; row < rows; row += 1) {
      for (let column = 0; column < columns; column += 1, at += 1) {
        values[at]! *= scale[column]!;
      }
    }
  }
  return { rows, columns, values, kept, constant, variance };
}

/** How much the variance of equal numbers can come to by rounding: the bound that scikit-learn takes. */
function roundings(rows: number, spread: number, mean: number): number {
  const least = Number.EPSILON * rows;
  return least * spread + (least * mean) ** 2;
}

/** The rows without NaN and infinity, and their mean. */
function finiteRows({ rows, columns, values }: IVectors): { kept: Int32Array; mean: Float64Array } {
  const retained = new Int32Array(rows);
  const mean = new Float64Array(columns);
  let count = 0;
  for (let row = 0; row < rows; row += 1) {
    const from = row * columns;
    let rest = 0;
    for (let at = from; at < from + columns; at += 1) {
      rest += values[at]! - values[at]!;
    }
    // What is not finite leaves NaN here, everything else 0.
    if (rest === 0) {
      retained[count] = row;
      count += 1;
      for (let column = 0; column < columns; column += 1) {
        mean[column]! += values[from + column]!;
      }
    }
  }
  return { kept: retained.slice(0, count), mean: mean.map(sum => sum / Math.max(1, count)) };
}

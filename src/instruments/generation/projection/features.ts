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

import type { IFeatures } from '../../aggregate/projection/features';

/** A row and how alike it is to what was asked about. */
export interface ILike {
  readonly row: number;
  /** Cosine similarity, -1 to 1. */
  readonly similarity: number;
}

/** Compares vectors about the mean of all by the cosine of the angle between them. */
export class Likeness {
  constructor(private readonly _features: IFeatures) {
    const { rows } = _features;
    this._lengths = Float64Array.from({ length: rows }, (_, row) => lengthOf(this.vectorOf(row)));
  }

  /** The features of a row about their mean. */
  vectorOf(row: number): Float32Array {
    const { columns, values } = this._features;
    return values.subarray(row * columns, (row + 1) * columns);
  }

  /** The mean of some rows. */
  meanOf(rows: readonly number[]): Float64Array {
    const mean = new Float64Array(this._features.columns);
    for (const row of rows) {
      this.vectorOf(row).forEach((value, column) => (mean[column] = (mean[column] ?? 0) + value));
    }
    return mean.map(value => value / Math.max(1, rows.length));
  }

  /** How alike each row is to a vector; 0 where one of them has no length. */
  to(vector: Float32Array | Float64Array): Float64Array {
    const length = lengthOf(vector);
    return this._lengths.map((own, row) => {
      const product = own * length;
      return product > 0 ? dot(this.vectorOf(row), vector) / product : 0;
    });
  }

  /**
   * The rows that are most alike to a vector, most alike first.
   *
   * @param but - Leaves rows out.
   */
  nearest(vector: Float32Array | Float64Array, count: number, but: (row: number) => boolean): ILike[] {
    const found: ILike[] = [];
    this.to(vector).forEach((similarity, row) => {
      const last = found[found.length - 1];
      if (but(row) || (found.length === count && last && similarity <= last.similarity)) {
        return;
      }
      const at = found.findIndex(each => similarity > each.similarity);
      found.splice(at < 0 ? found.length : at, 0, { row, similarity });
      found.length = Math.min(found.length, count);
    });
    return found;
  }

  private readonly _lengths: Float64Array;
}

/** The length of a vector. */
export const lengthOf = (vector: Float32Array | Float64Array): number => Math.sqrt(dot(vector, vector));

function dot(a: Float32Array | Float64Array, b: Float32Array | Float64Array): number {
  let sum = 0;
  for (let at = 0; at < a.length; at += 1) {
    sum += (a[at] as number) * (b[at] as number);
  }
  return sum;
}

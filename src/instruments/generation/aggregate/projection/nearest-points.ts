import type { IVectors } from './features';

/** Rows that are compared with all others at once. */
const BLOCK = 4;

/** Of each point the nearest others, nearest first: `[rows, count]`. */
export interface INearest {
  readonly count: number;
  readonly rows: Int32Array;
  /** Euclidean. */
  readonly distances: Float64Array;
}

/** Looks for the nearest points of every point, exactly, a stretch at a time: each is compared with every other. */
export class NearestPoints {
  /**
   * @param count - Neighbours of each point; fewer where there are not so many others.
   */
  constructor(
    private readonly points: IVectors,
    count: number
  ) {
    const { rows, columns, values } = points;
    this.count = Math.max(0, Math.min(count, rows - 1));
    this.rows = new Int32Array(rows * this.count);
    this.squares = new Float64Array(rows * this.count).fill(Infinity);
    this.lengths = new Float64Array(rows);
    for (let row = 0, at = 0; row < rows; row += 1) {
      for (let column = 0; column < columns; column += 1, at += 1) {
        this.lengths[row]! += values[at]! ** 2;
      }
    }
    this.apart = new Float64Array(BLOCK * rows);
  }

  /** Points whose neighbours are known. */
  done = 0;

  get isDone(): boolean {
    return this.done >= this.points.rows;
  }

  /**
   * Go on.
   *
   * @param work - About how many numbers to multiply.
   */
  advance(work: number): void {
    const { rows, columns } = this.points;
    const blocks = Math.max(1, Math.round(work / (BLOCK * rows * columns)));
    for (let block = 0; block < blocks && !this.isDone; block += 1) {
      this.measure();
      const last = Math.min(rows, this.done + BLOCK);
      for (let row = this.done; row < last; row += 1) {
        this.choose(row, (row - this.done) * rows);
      }
      this.done = last;
    }
  }

  /** What was found. */
  found(): INearest {
    const { count, rows } = this;
    return { count, rows, distances: this.squares.map(square => Math.sqrt(Math.max(0, square))) };
  }

  /** Squared distances of the next rows from all rows: |a|² + |b|² - 2 a·b. */
  private measure(): void {
    const { apart, lengths } = this;
    const { rows, columns, values } = this.points;
    // Past the last row the last one stands again; what it says is not read.
    const place = (row: number): number => Math.min(this.done + row, rows - 1);
    const [a, b, c, d] = [place(0), place(1), place(2), place(3)] as const;
    const [fromA, fromB, fromC, fromD] = [a * columns, b * columns, c * columns, d * columns] as const;
    for (let row = 0; row < rows; row += 2) {
      const first = row * columns;
      const second = row + 1 < rows ? first + columns : first;
      let [a1, b1, c1, d1, a2, b2, c2, d2] = [0, 0, 0, 0, 0, 0, 0, 0];
      for (let column = 0; column < columns; column += 1) {
        const x = values[first + column]!;
        const y = values[second + column]!;
        const p = values[fromA + column]!;
        const q = values[fromB + column]!;
        const r = values[fromC + column]!;
        const s = values[fromD + column]!;
        a1 += p * x;
        b1 += q * x;
        c1 += r * x;
        d1 += s * x;
        a2 += p * y;
        b2 += q * y;
        c2 += r * y;
        d2 += s * y;
      }
      apart[row] = lengths[a]! + lengths[row]! - 2 * a1;
      apart[rows + row] = lengths[b]! + lengths[row]! - 2 * b1;
      apart[2 * rows + row] = lengths[c]! + lengths[row]! - 2 * c1;
      apart[3 * rows + row] = lengths[d]! + lengths[row]! - 2 * d1;
      if (row + 1 < rows) {
        apart[row + 1] = lengths[a]! + lengths[row + 1]! - 2 * a2;
        apart[rows + row + 1] = lengths[b]! + lengths[row + 1]! - 2 * b2;
        apart[2 * rows + row + 1] = lengths[c]! + lengths[row + 1]! - 2 * c2;
        apart[3 * rows + row + 1] = lengths[d]! + lengths[row + 1]! - 2 * d2;
      }
    }
  }

  /** Put the nearest of a row in order; of equals the earlier one comes first. */
  private choose(row: number, from: number): void {
    const { apart, count, squares } = this;
    const first = row * count;
    const last = first + count - 1;
    if (count === 0) {
      return;
    }
    for (let other = 0; other < this.points.rows; other += 1) {
      const square = apart[from + other]!;
      if (square < squares[last]! && other !== row) {
        let at = last;
        for (; at > first && squares[at - 1]! > square; at -= 1) {
          squares[at] = squares[at - 1]!;
          this.rows[at] = this.rows[at - 1]!;
        }
        squares[at] = square;
        this.rows[at] = other;
      }
    }
  }

  private readonly count: number;
  private readonly rows: Int32Array;
  private readonly squares: Float64Array;
  private readonly lengths: Float64Array;
  private readonly apart: Float64Array;
}

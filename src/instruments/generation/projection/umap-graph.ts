import type { IVectors } from './features';

/** Rows that are compared with all others at once. */
const BLOCK = 4;

/** Of each point the nearest others, nearest first: `[rows, count]`. */
interface INearest {
  readonly count: number;
  readonly rows: Int32Array;
  /** Euclidean. */
  readonly distances: Float64Array;
}

/** Finds the exact nearest neighbours of every point by comparing all pairs, a stretch at a time. */
export class NearestPoints {
  /** @param count - Neighbours of each point; fewer where there are not so many others. */
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

  /** Go on. */
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

const LN2 = 0.6931471805599453;

/**
 * `Math.exp`, `Math.log` and powers out of nothing but the four operations, which have one answer everywhere.
 * Those of the language may differ in their last digit from browser to browser, and a layout that is found by
 * many small moves would end somewhere else.
 */
export function exactExp(x: number): number {
  if (!(x > -745)) {
    return 0;
  }
  const halvings = Math.round(x / LN2);
  const rest = x - halvings * LN2;
  let term = 1;
  let sum = 1;
  for (let order = 1; order <= 16; order += 1) {
    term *= rest / order;
    sum += term;
  }
  return sum * powerOfTwo(halvings);
}

/** Natural logarithm of a number above 0. */
export function exactLog(x: number): number {
  let exponent = 0;
  let mantissa = x;
  while (mantissa > 1.5) {
    mantissa /= 2;
    exponent += 1;
  }
  while (mantissa < 0.75) {
    mantissa *= 2;
    exponent -= 1;
  }
  // ln m = 2 artanh((m - 1) / (m + 1)), with an argument of at most 1/5.
  const part = (mantissa - 1) / (mantissa + 1);
  const square = part * part;
  let power = part;
  let sum = 0;
  for (let order = 1; order <= 23; order += 2) {
    sum += power / order;
    power *= square;
  }
  return 2 * sum + exponent * LN2;
}

/** A number above 0 to any power. */
export const exactPower = (x: number, power: number): number => exactExp(power * exactLog(x));

function powerOfTwo(exponent: number): number {
  let value = 1;
  for (let left = Math.abs(exponent); left > 0; left -= 1) {
    value *= exponent < 0 ? 0.5 : 2;
  }
  return value;
}

const SEARCHES = 64;
const CLOSE = 1e-5;
/** Least width of a neighbourhood, as a part of the mean distance. */
const LEAST_WIDTH = 1e-3;

/** Which points belong together and how surely. Each pair is here in both directions. */
export interface IUmapGraph {
  readonly heads: Int32Array;
  readonly tails: Int32Array;
  /** Above 0, at most 1. */
  readonly weights: Float64Array;
}

/**
 * The fuzzy graph of UMAP (McInnes, Healy and Melville, arXiv:1802.03426, section 3): each point's neighbours
 * are weighted by distance in a measure of its own, and two points belong together where either says so.
 */
export function umapGraph(nearest: INearest, points: number): IUmapGraph {
  const { count, rows } = nearest;
  const sure = membership(nearest, points);
  const weightOf = (head: number, tail: number): number => {
    for (let at = head * count; at < (head + 1) * count; at += 1) {
      if (rows[at] === tail) {
        return sure[at]!;
      }
    }
    return 0;
  };
  const [heads, tails, weights] = [[] as number[], [] as number[], [] as number[]];
  for (let head = 0; head < points; head += 1) {
    for (let at = head * count; at < (head + 1) * count; at += 1) {
      const tail = rows[at]!;
      const [there, back] = [sure[at]!, weightOf(tail, head)];
      const weight = there + back - there * back;
      if (weight > 0) {
        heads.push(head);
        tails.push(tail);
        weights.push(weight);
        // The other direction comes by itself where it is a neighbour as well.
        if (back === 0) {
          heads.push(tail);
          tails.push(head);
          weights.push(weight);
        }
      }
    }
  }
  return {
    heads: Int32Array.from(heads),
    tails: Int32Array.from(tails),
    weights: Float64Array.from(weights)
  };
}

/** Membership of each neighbour: 1 for the nearest; all of them sum to log2 of their number. */
function membership({ count, distances }: INearest, points: number): Float64Array {
  const target = exactLog(count + 1) / exactLog(2);
  const mean = distances.reduce((sum, distance) => sum + distance, 0) / Math.max(1, distances.length);
  const sure = new Float64Array(distances.length);
  for (let point = 0; point < points; point += 1) {
    const own = distances.subarray(point * count, (point + 1) * count);
    const nearest = own.find(distance => distance > 0) ?? 0;
    const width = widthOf(own, nearest, target);
    const ownMean = own.reduce((sum, distance) => sum + distance, 0) / Math.max(1, count);
    const clamped = Math.max(width, LEAST_WIDTH * (nearest > 0 ? ownMean : mean));
    own.forEach((distance, at) => {
      const beyond = distance - nearest;
      sure[point * count + at] = beyond <= 0 || clamped === 0 ? 1 : exactExp(-beyond / clamped);
    });
  }
  return sure;
}

/** The width at which the memberships of a point add up to the target. */
function widthOf(distances: Float64Array, nearest: number, target: number): number {
  let [low, high, width] = [0, Infinity, 1];
  for (let search = 0; search < SEARCHES; search += 1) {
    let sum = 0;
    for (const distance of distances) {
      const beyond = distance - nearest;
      sum += beyond > 0 ? exactExp(-beyond / width) : 1;
    }
    if (Math.abs(sum - target) < CLOSE) {
      break;
    }
    if (sum > target) {
      high = width;
      width = (low + high) / 2;
    } else {
      low = width;
      width = high === Infinity ? width * 2 : (low + high) / 2;
    }
  }
  return width;
}

import type { INearest } from './nearest-points';

const LN2 = 0.6931471805599453;

/**
 * `Math.exp`, `Math.log` and powers out of nothing but the four operations, which have one answer everywhere. Those of the language may differ in their last digit from browser
 * to browser, and a layout that is found by many small moves would end somewhere else.
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
export function exactPower(x: number, power: number): number {
  return exactExp(power * exactLog(x));
}

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
 * The fuzzy graph of UMAP (McInnes, Healy and Melville, arXiv:1802.03426, section 3): each point's neighbours are weighted by distance in a measure of its own, and two points
 * belong together where either says so.
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

/** How surely each neighbour belongs to its point: 1 for the nearest, and as much over all of them as log2 of their number says. */
function membership({ count, distances }: INearest, points: number): Float64Array {
  const target = exactLog(count + 1) / exactLog(2);
  const mean = distances.reduce((sum, distance) => sum + distance, 0) / Math.max(1, distances.length);
  const sure = new Float64Array(distances.length);
  for (let point = 0; point < points; point += 1) {
    const own = distances.subarray(point * count, (point + 1) * count);
    const nearest = own.find(distance => distance > 0) ?? 0;
    const width = widthOf(own, nearest, target);
    const ownMean = own.reduce((sum, distance) => sum + distance, 0) / Math.max(1, count);
    const held = Math.max(width, LEAST_WIDTH * (nearest > 0 ? ownMean : mean));
    own.forEach((distance, at) => {
      const beyond = distance - nearest;
      sure[point * count + at] = beyond <= 0 || held === 0 ? 1 : exactExp(-beyond / held);
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

import { exactPower } from './exact-functions';
import { SeededRandom } from '../../../../protocol/seeded-random';
import type { IUmapGraph } from './umap-graph';

/** Coefficients of the curve 1 / (1 + A d^2B) that fits a least distance of 0.1 and a spread of 1, as `umap-learn` finds them. */
const A = 1.5769434603113077;
const B = 0.8950608779109733;
/** Points that a point is pushed away from, for each that it is drawn to. */
const PUSHES = 5;
/** Longest move along an axis. */
const FARTHEST = 4;
/** Half the width of the layout that is begun from. */
const HALF_WIDTH = 10;
/** Entries of the table of powers for each doubling, a power of two. */
const PER_DOUBLING = 64;
const LEAST_EXPONENT = -40;
const MOST_EXPONENT = 40;

/** Moves points until those that belong together are near one another: the stochastic gradient descent of UMAP, an epoch at a time. */
export class UmapLayout {
  /**
   * @param start - `[points, 2]`, where the points are at the beginning.
   * @param epochs - How often all pairs are looked at.
   */
  constructor(
    private readonly graph: IUmapGraph,
    start: Float64Array,
    readonly epochs: number,
    seed: number
  ) {
    this.random = new SeededRandom(seed);
    const widest = start.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    const scale = widest > 0 ? HALF_WIDTH / widest : 0;
    // Equal points must part.
    this.places = start.map(value => value * scale + 1e-3 * this.random.centred());
    const greatest = graph.weights.reduce((most, weight) => Math.max(most, weight), 0);
    this.every = graph.weights.map(weight => greatest / weight);
    this.next = this.every.slice();
    this.nextPush = this.every.map(each => each / PUSHES);
  }

  /** `[points, 2]`, as it is now. */
  readonly places: Float64Array;

  /** Epochs that are done. */
  epoch = 0;

  /** Do one epoch. */
  advance(): void {
    const { every, graph, next, nextPush, places } = this;
    const { heads, tails } = graph;
    const points = places.length / 2;
    const rate = 1 - this.epoch / this.epochs;
    for (let pair = 0; pair < heads.length; pair += 1) {
      const often = every[pair]!;
      if (next[pair]! > this.epoch || often > this.epochs) {
        continue;
      }
      next[pair]! += often;
      const head = 2 * heads[pair]!;
      const tail = 2 * tails[pair]!;
      const x = places[head]! - places[tail]!;
      const y = places[head + 1]! - places[tail + 1]!;
      const square = x * x + y * y;
      if (square > 0) {
        const power = powerOf(square);
        const pull = (-2 * A * B * power) / (square * (1 + A * power));
        const across = rate * held(pull * x);
        const up = rate * held(pull * y);
        places[head]! += across;
        places[head + 1]! += up;
        places[tail]! -= across;
        places[tail + 1]! -= up;
      }
      const pushEvery = often / PUSHES;
      for (let due = nextPush[pair]! + pushEvery; due <= this.epoch; due += pushEvery) {
        nextPush[pair] = due;
        this.push(head, 2 * this.random.below(points), rate);
      }
    }
    this.epoch += 1;
  }

  private push(head: number, other: number, rate: number): void {
    const { places } = this;
    const x = places[head]! - places[other]!;
    const y = places[head + 1]! - places[other + 1]!;
    const square = x * x + y * y;
    if (square > 0) {
      const away = (2 * B) / ((0.001 + square) * (1 + A * powerOf(square)));
      places[head]! += rate * held(away * x);
      places[head + 1]! += rate * held(away * y);
    }
  }

  private readonly random: SeededRandom;
  /** Epochs from one look at a pair to the next. */
  private readonly every: Float64Array;
  private readonly next: Float64Array;
  private readonly nextPush: Float64Array;
}

const held = (move: number): number => (move > FARTHEST ? FARTHEST : move < -FARTHEST ? -FARTHEST : move);

const word = new Float64Array(1);
const halves = new Uint32Array(word.buffer);
/** Which half of a number holds its exponent: the machine's order of bytes says. */
const upper = ((): number => {
  word[0] = 1;
  return halves[1] === 0 ? 0 : 1;
})();

const powers = Float64Array.from(
  { length: (MOST_EXPONENT - LEAST_EXPONENT) * PER_DOUBLING + 1 },
  (_, at) =>
    exactPower(1 + (at % PER_DOUBLING) / PER_DOUBLING, B) *
    exactPower(2, B * (Math.floor(at / PER_DOUBLING) + LEAST_EXPONENT))
);

/** `square ** B` from a table, to about 1e-5: it is asked for tens of millions of times. */
function powerOf(square: number): number {
  word[0] = square;
  const bits = halves[upper]!;
  const exponent = (bits >>> 20) - 1023 - LEAST_EXPONENT;
  if (exponent < 0) {
    return 0;
  }
  if (exponent >= MOST_EXPONENT - LEAST_EXPONENT) {
    return powers[powers.length - 1]!;
  }
  const at = exponent * PER_DOUBLING + ((bits >>> 14) & (PER_DOUBLING - 1));
  const between = (bits & 0x3fff) / 0x4000;
  return powers[at]! + (powers[at + 1]! - powers[at]!) * between;
}

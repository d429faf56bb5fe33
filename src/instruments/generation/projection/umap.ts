import { SeededRandom } from '../../../protocol/seeded-random';
import type { IVectors } from './features';
import { principalComponents } from './principal-components';
import { NearestPoints, exactPower, type IUmapGraph, umapGraph } from './umap-graph';

/** Coefficients of 1 / (1 + A d^2B) for a least distance of 0.1 and a spread of 1, as `umap-learn` fits. */
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

/** Moves connected points together: the stochastic gradient descent of UMAP, an epoch at a time. */
class UmapLayout {
  /** @param start - `[points, 2]`, where the points are at the beginning. */
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
    this.coordinates = start.map(value => value * scale + 1e-3 * this.random.centred());
    const greatest = graph.weights.reduce((most, weight) => Math.max(most, weight), 0);
    this.every = graph.weights.map(weight => greatest / weight);
    this.next = this.every.slice();
    this.nextPush = this.every.map(each => each / PUSHES);
  }

  /** `[points, 2]`, as it is now. */
  readonly coordinates: Float64Array;

  epoch = 0;

  advance(): void {
    const { every, graph, next, nextPush, coordinates } = this;
    const { heads, tails } = graph;
    const points = coordinates.length / 2;
    const rate = 1 - this.epoch / this.epochs;
    for (let pair = 0; pair < heads.length; pair += 1) {
      const often = every[pair]!;
      if (next[pair]! > this.epoch || often > this.epochs) {
        continue;
      }
      next[pair]! += often;
      const head = 2 * heads[pair]!;
      const tail = 2 * tails[pair]!;
      const x = coordinates[head]! - coordinates[tail]!;
      const y = coordinates[head + 1]! - coordinates[tail + 1]!;
      const square = x * x + y * y;
      if (square > 0) {
        const power = powerOf(square);
        const pull = (-2 * A * B * power) / (square * (1 + A * power));
        const across = rate * clamped(pull * x);
        const up = rate * clamped(pull * y);
        coordinates[head]! += across;
        coordinates[head + 1]! += up;
        coordinates[tail]! -= across;
        coordinates[tail + 1]! -= up;
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
    const { coordinates } = this;
    const x = coordinates[head]! - coordinates[other]!;
    const y = coordinates[head + 1]! - coordinates[other + 1]!;
    const square = x * x + y * y;
    if (square > 0) {
      const away = (2 * B) / ((0.001 + square) * (1 + A * powerOf(square)));
      coordinates[head]! += rate * clamped(away * x);
      coordinates[head + 1]! += rate * clamped(away * y);
    }
  }

  private readonly random: SeededRandom;
  /** Epochs from one look at a pair to the next. */
  private readonly every: Float64Array;
  private readonly next: Float64Array;
  private readonly nextPush: Float64Array;
}

const clamped = (move: number): number => (move > FARTHEST ? FARTHEST : move < -FARTHEST ? -FARTHEST : move);

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

/** With more features than this neighbours are looked for among the first components. */
const MOST_COLUMNS = 128;
const COMPONENTS = 64;
/** Tolerance of the components of that search: they need not be exact, only hold as much variance. */
const LOOSE = 0.01;
/** Numbers that one stretch multiplies: some 50 ms. */
const WORK = 40e6;
/** Pairs that one stretch of the layout looks at. */
const PAIRS = 1e6;
/** Epochs by the most points that take so many. 500, as in `umap-learn`, beat 300 by 0.5 % of neighbours. */
const EPOCHS: readonly (readonly [points: number, epochs: number])[] = [
  [2500, 400],
  [10_000, 300],
  [Infinity, 200]
];

export interface IUmapSettings {
  /** Points of a neighbourhood, the point itself among them; at least 2. */
  readonly neighbors: number;
  readonly seed: number;
}

/** How far UMAP is. */
export interface IUmapState {
  /** Parts of the work, such that equal parts take about equal time. */
  readonly done: number;
  readonly total: number;
  /** `[points, 2]`, as it is now. */
  readonly coordinates: Float64Array;
  /** Part of the variance among which neighbours are looked for: 1 where it is all features. */
  readonly seen: number;
}

/**
 * UMAP (McInnes, Healy and Melville, arXiv:1802.03426) into a plane, a stretch at a time, so that others have
 * their turn and nobody who waits no more is waited for. It begins from a given layout, such as principal
 * components. The same points, layout and seed give the same picture, to the last bit.
 */
export class Umap {
  /**
   * @param points - All finite.
   * @param start - `[points, 2]`.
   */
  constructor(
    private readonly points: IVectors,
    private readonly start: Float64Array,
    private readonly request: IUmapSettings
  ) {
    this.epochs = EPOCHS.find(([most]) => points.rows <= most)?.[1] ?? 0;
  }

  /** Do some more of the work, and say how far it is. */
  advance(): IUmapState {
    if (this.nearest === null) {
      const reduced = this.points.columns > MOST_COLUMNS ? this.reduced() : this.points;
      this.nearest = new NearestPoints(reduced, this.request.neighbors - 1);
    } else if (!this.nearest.isDone) {
      this.nearest.advance(WORK);
    } else if (this.layout === null) {
      const graph = umapGraph(this.nearest.found(), this.points.rows);
      this.layout = new UmapLayout(graph, this.start, this.epochs, this.request.seed);
      this.stretch = Math.max(1, Math.floor(PAIRS / Math.max(1, graph.heads.length)));
    } else {
      for (let epoch = 0; epoch < this.stretch && this.layout.epoch < this.epochs; epoch += 1) {
        this.layout.advance();
      }
    }
    return this.state;
  }

  get state(): IUmapState {
    const { epochs, layout, nearest, points } = this;
    // Looking for neighbours takes about a third of the time.
    const looked = (nearest?.done ?? 0) / Math.max(1, points.rows);
    return {
      done: Math.floor((epochs / 2) * looked) + (layout?.epoch ?? 0),
      total: Math.floor(epochs / 2) + epochs,
      coordinates: (layout?.coordinates ?? this.start).slice(),
      seen: this.seen
    };
  }

  private reduced(): IVectors {
    const { rows } = this.points;
    const { scores, ratios } = principalComponents(this.points, COMPONENTS, false, LOOSE);
    this.seen = ratios.reduce((sum, ratio) => sum + ratio, 0);
    return { rows, columns: COMPONENTS, values: Float32Array.from(scores) };
  }

  private readonly epochs: number;
  private nearest: NearestPoints | null = null;
  private layout: UmapLayout | null = null;
  /** Epochs of one stretch. */
  private stretch = 1;
  private seen = 1;
}

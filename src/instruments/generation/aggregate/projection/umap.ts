import type { IVectors } from './features';
import { NearestPoints } from './nearest-points';
import { principalComponents } from './principal-components';
import { umapGraph } from './umap-graph';
import { UmapLayout } from './umap-layout';

/** With more features than this neighbours are looked for among the first components. */
const MOST_COLUMNS = 128;
const COMPONENTS = 64;
/** How far the components of that search may be from the exact ones: they need not be these, only hold as much. */
const LOOSE = 0.01;
/** Numbers that one stretch multiplies: some 50 ms. */
const WORK = 40e6;
/** Pairs that one stretch of the layout looks at. */
const PAIRS = 1e6;
/** Epochs by the most points that have so many. From components on 500, as `umap-learn` has, keep half a percent more neighbours than 300. */
const EPOCHS: readonly (readonly [points: number, epochs: number])[] = [
  [2500, 400],
  [10_000, 300],
  [Infinity, 200]
];

/** How UMAP is to be done. */
export interface IUmapWish {
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
  readonly places: Float64Array;
  /** Part of the variance among which neighbours are looked for: 1 where it is all features. */
  readonly seen: number;
}

/**
 * UMAP (McInnes, Healy and Melville, arXiv:1802.03426) into a plane, a stretch at a time, so that others have their turn and nobody who waits no more is waited for. It begins from a
 * given layout, such as principal components. The same points, layout and seed give the same picture, to the last bit.
 */
export class Umap {
  /**
   * @param points - All finite.
   * @param start - `[points, 2]`.
   */
  constructor(
    private readonly points: IVectors,
    private readonly start: Float64Array,
    private readonly wish: IUmapWish
  ) {
    this.epochs = EPOCHS.find(([most]) => points.rows <= most)?.[1] ?? 0;
  }

  /** Do some more of the work, and say how far it is. */
  advance(): IUmapState {
    if (this.nearest === null) {
      const reduced = this.points.columns > MOST_COLUMNS ? this.reduced() : this.points;
      this.nearest = new NearestPoints(reduced, this.wish.neighbors - 1);
    } else if (!this.nearest.isDone) {
      this.nearest.advance(WORK);
    } else if (this.layout === null) {
      const graph = umapGraph(this.nearest.found(), this.points.rows);
      this.layout = new UmapLayout(graph, this.start, this.epochs, this.wish.seed);
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
      places: (layout?.places ?? this.start).slice(),
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

import type { TrendOptions } from '../protocol/views.generated';
import type { IKept, IMissingSteps, ITensorQuery, ITensorRow } from './tensor-data';

/** Which values of a tensor enter a statistic, and what is asked of their spread. */
export interface ISelection extends Required<Pick<TrendOptions, 'positions' | 'vector' | 'interval'>> {
  /** Axis names of one sample from hello, such as ['position', 'feature']. */
  readonly axes: readonly string[];
}

/** Which lines of a statistic of tensors are wanted. Absent members match everything. */
export interface ITrendQuery extends Omit<ITensorQuery, 'measured' | 'reduced'> {
  statistic: Required<TrendOptions>['statistic'];
  /** Of kept values only; all of them when absent. */
  selection?: ISelection;
  /** About how many points of a line are wanted; every one when absent. First, last, least and greatest of every stretch stay. */
  points?: number;
}

/** A statistic of one layer over steps. */
export interface ILayerLine {
  readonly layer: number;
  /** Ascending. */
  readonly steps: Float64Array;
  /** NaN where nothing was finite. */
  readonly values: Float64Array;
  /** Values of the tensors that were not finite. */
  readonly nonFinite: Float64Array;
  /** Half the width of the band about each value, NaN where there is too little; absent where none was asked for. */
  readonly half?: Float64Array;
  /**
   * Places, ascending, at which the line begins anew: what lies before such a point is not joined with it, because steps are missing between them or
   * because compressor, samples or sampling changed. The first point is none.
   */
  readonly starts: readonly number[];
}

/** What words and controls must know of the tensors behind a trend. */
export type ITrendTensor = Pick<ITensorRow, 'compressor' | 'shape' | 'sourceShape'>;

/** Lines of a trend, as many points as were wanted. */
export interface ITrendAnswer {
  /** Layers ascending. */
  readonly lines: readonly ILayerLine[];
  /** Steps that there are of what was asked, thinned out or not. */
  readonly total: number;
  /** Steps that are known to be missing. */
  readonly missing: readonly IMissingSteps[];
  /** Whether a statistic of the whole tensor was asked for and is of what the compressor kept, because nothing else is known. */
  readonly kept: boolean;
  /** Compressors of the rows, in the order of their steps. */
  readonly compressors: readonly string[];
  /** Ranks of the rows, ascending. */
  readonly ranks: readonly number[];
  /** Of the newest row; null where there is none. */
  readonly newest: ITrendTensor | null;
  /** Positions and samples that a band is over at the newest step; 0 where none was asked for. */
  readonly units: number;
  /** Rows of which nothing is left anywhere that can be asked. */
  readonly evictedRows: number;
  /** Set where not every row was there to choose from: only every n-th step is here, with this n. */
  readonly sampledEvery?: number;
  /** Of sources that keep a bounded history: what they still have. */
  readonly memory?: IKept;
}

/** Which scalars are wanted. */
export interface IScalarQuery {
  /** All when absent. */
  names?: readonly string[] | null;
  steps?: readonly [number, number];
  /** As in `ITrendQuery`. */
  points?: number;
}

/** A scalar over steps. All arrays have one length. */
export interface IScalarLine {
  readonly name: string;
  readonly unit: string;
  /** Ascending. */
  readonly steps: Float64Array;
  /** Seconds since the epoch. */
  readonly times: Float64Array;
  readonly values: Float64Array;
  /** As in `ILayerLine`. */
  readonly starts: readonly number[];
  /** Points that there are, thinned out or not. */
  readonly total: number;
}

/** Scalars as lines, and what else there is. */
export interface IScalarAnswer {
  /** In the order of the names that were asked for; those without a point are left out. */
  readonly lines: readonly IScalarLine[];
  /** Unit of every scalar of the run by its name. */
  readonly units: Readonly<Record<string, string>>;
  readonly missing: readonly IMissingSteps[];
  /** Points between minima and maxima that nobody has any more; absent is none. */
  readonly thinned?: number;
}

import type { IMomentIndex } from '../client/moments-api';
import type { MomentGroupsRequest, MomentRowsRequest } from '../protocol/requests.generated';
import type {
  MeasuredTensors,
  MomentFilter,
  MomentGroupBy,
  MomentStatistic
} from '../protocol/views.generated';
import type { MomentNumbers } from './row-moments';

export type { IMomentIndex, MeasuredTensors as MomentStat, MomentFilter, MomentStatistic };

/** A column by which tensors are grouped; 'capture' is what the pattern's groups find in the name. */
export type MomentColumn = MomentGroupBy[number];

/** Rows as columns of equal length, ordered by step. */
export interface IMomentRows extends MomentNumbers {
  readonly stat: readonly MeasuredTensors[];
  readonly names: readonly string[];
}

/** The key of a group: one value for each column of `by`, null where a name does not have it. */
export type MomentKey = readonly (string | number | null)[];

/** One row per step and group, ordered by group, then step. All arrays but `keys` have one length. */
export interface IMomentGroups {
  /** Key of each group, in natural order. */
  readonly keys: readonly MomentKey[];
  readonly group: Uint32Array;
  readonly step: Float64Array;
  readonly samples: Float64Array;
  /** The statistic, or the ratio of two; NaN where there is none. */
  readonly value: Float64Array;
  /** Finite values; 0 is no data. */
  readonly count: Float64Array;
  /** NaN and infinite values; NaN where it is not known how many, though there are some. */
  readonly nonFinite: Float64Array;
  /** How far the value may be off by the rounding of raw sums, in its own unit; 0 where it is exact. */
  readonly error: Float64Array;
  /** Sum of bits: `SCALED` if gradients may hold an unknown loss scale, `CLIPPED` if they may be clipped. */
  readonly scaled: Uint8Array;
  /** Groups and steps that there were before the largest were chosen and steps were left out. */
  readonly groupsTotal: number;
  readonly stepsTotal: number;
}

/** Bits of `scaled`. */
export const SCALED = 1;
export const CLIPPED = 2;

/** The columns of an answer that are float64. */
export const GROUP_FLOATS = ['step', 'samples', 'value', 'count', 'nonFinite', 'error'] as const;

/** Hears how many bytes of how many are read, while files are read for the first time. */
export type ReadingProgress = (done: number, total: number) => void;

/** The stream `moments` of one run. Queries reject with a `StoreError` that says what to do. */
export interface IMomentSource {
  /** With more rows than this in the stats asked for, `rows` brings none, or maybe with fewer. */
  readonly limitRows?: number;
  /**
   * What there is.
   * @param told - Called every second while this takes long.
   */
  index(signal?: AbortSignal, onProgress?: ReadingProgress): Promise<IMomentIndex>;
  /**
   * The rows, or null where they are too many to be brought here; ask for groups then.
   *
   * `where` says what is enough: rows that it does not match may be among the answer. The columns are the
   * asker's own, to keep or to hand to a worker.
   */
  rows(request: MomentRowsRequest, signal?: AbortSignal): Promise<IMomentRows | null>;
  /** Groups as the server computes them, from rows that stay there. */
  groups(request: MomentGroupsRequest, signal?: AbortSignal): Promise<IMomentGroups>;
}

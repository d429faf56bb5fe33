import type { MomentGroupBy, MomentsOptions } from '../protocol/views.generated';

/** What can be measured of a tensor. */
export type MomentStat = NonNullable<MomentsOptions['stat']>;

/** What is read from a group's moments. */
export type MomentStatistic = NonNullable<MomentsOptions['statistic']>;

/** A column by which tensors are grouped; 'capture' is what the pattern's groups find in the name. */
export type MomentColumn = MomentGroupBy[number];

/** Which tensors take part; absent members match everything. Numbers are texts of ranges, words are lists of which one must match. */
export interface IMomentFilter {
  /** Regular expression that is found somewhere in the name. */
  readonly name?: string;
  readonly layer?: string;
  readonly expert?: string;
  readonly rank?: string;
  readonly stage?: string;
  readonly stack?: readonly string[];
  readonly family?: readonly string[];
  readonly kind?: readonly string[];
  readonly module_type?: readonly string[];
  readonly item_type?: readonly string[];
  readonly role?: readonly ('input' | 'output')[];
}

/** What a run has of the stream `moments`. */
export interface IMomentIndex {
  /** Changes whenever there is more. */
  readonly version: string;
  readonly stats: readonly {
    readonly stat: MomentStat;
    readonly rows: number;
    /** First and last step that has rows. */
    readonly first: number;
    readonly last: number;
    /** Number of steps that have rows. */
    readonly steps: number;
  }[];
  /** Every tensor's name; rows name a place in here. Names are only ever added at the end. */
  readonly names: readonly string[];
  /** Whether steps are known as samples too. */
  readonly samples: boolean;
  /** Sentences about what is superseded, left out or unreadable. */
  readonly warnings: readonly string[];
}

/** Rows as columns of equal length, ordered by step. */
export interface IMomentRows {
  readonly stat: readonly MomentStat[];
  /** Place in `names`. */
  readonly nameId: Int32Array;
  readonly names: readonly string[];
  readonly step: Float64Array;
  /** Samples consumed; -1 where nobody said. */
  readonly samples: Float64Array;
  readonly rank: Int32Array;
  readonly stage: Int32Array;
  readonly count: Float64Array;
  readonly mean: Float64Array;
  readonly m2: Float64Array;
  readonly m3: Float64Array;
  readonly m4: Float64Array;
  readonly min: Float64Array;
  readonly max: Float64Array;
  readonly nanCount: Float64Array;
  readonly infCount: Float64Array;
  readonly rounding: Float64Array;
  /** Divided out; NaN where a scale may be in the values and is not known. */
  readonly lossScale: Float64Array;
}

/** A question about groups of tensors. */
export interface IMomentQuery {
  readonly stat: MomentStat;
  readonly statistic: MomentStatistic;
  /** Columns that make a group; none is the total. */
  readonly by: readonly MomentColumn[];
  readonly pattern?: string | null;
  readonly where?: IMomentFilter;
  /** Inclusive first and last step. */
  readonly steps?: readonly [number, number] | null;
  /** grad_to_param: of gradients over that of parameters; gain: output over input of a module, of dgrads input over output. */
  readonly ratio?: 'none' | 'grad_to_param' | 'gain';
  /** Let inputs and outputs of modules enter one group; refused without it. */
  readonly mixed?: boolean;
  /** How values are shown: as they are, divided by the first of the group in the whole run, minus it, or the change from it in per cent. */
  readonly show?: Required<MomentsOptions>['show'];
  /** Trailing mean over this many steps of a group; 0 and 1 leave the values as they are. */
  readonly smoothing?: number;
  /** At most about so many steps a group; every minimum, maximum and non-finite step stays. */
  readonly points?: number;
  /** At most so many groups: those of the greatest magnitudes. */
  readonly series?: number;
}

/** The key of a group: one value for each column of `by`, null where a name does not have it. */
export type MomentKey = readonly (string | number | null)[];

/** The answer: one row for each step of each group, ordered by group, then step. All arrays but `keys` have one length. */
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
  /** 1 where gradients may hold a loss scale that is not known. */
  readonly scaled: Uint8Array;
  /** Groups and steps that there were before the largest were chosen and steps were left out. */
  readonly groupsTotal: number;
  readonly stepsTotal: number;
}

/** Hears how many bytes of how many are read, while files are read for the first time. */
export type ReadingProgress = (done: number, total: number) => void;

/** The stream `moments` of one run. Queries reject with a `StoreError` that says what to do. */
export interface IMomentSource {
  /** Of more rows than this in the stats that are asked for `rows` brings none; it may do so of fewer. Absent where nothing is known of it. */
  readonly limitRows?: number;
  /**
   * What there is.
   *
   * @param told - Called every second while this takes long.
   */
  index(signal?: AbortSignal, told?: ReadingProgress): Promise<IMomentIndex>;
  /**
   * The rows, or null where they are too many to be brought here; ask for groups then.
   *
   * `where` says what is enough: rows that it does not match may be among the answer. The columns are the asker's own, to keep or to hand to a worker.
   */
  rows(
    stats: readonly MomentStat[],
    where?: IMomentFilter,
    steps?: readonly [number, number] | null,
    signal?: AbortSignal
  ): Promise<IMomentRows | null>;
  /** Groups as the server computes them, from rows that stay there. */
  groups(query: IMomentQuery, signal?: AbortSignal): Promise<IMomentGroups>;
}

import type { Pass, Phase } from '../protocol/messages.generated';
import type { StreamRequest } from '../protocol/requests.generated';

/** Every phase and every pass. */
export const PHASES = ['train', 'eval', 'generate'] as const satisfies readonly Phase[];
export const PASSES = ['forward', 'backward'] as const satisfies readonly Pass[];

/** The flag that carries texts, one of each position: no picture of its own. */
export const TOKENS = 'InputTokens';

/** Steps of a run that are known to be missing, both included, and why: a sentence. */
export interface IMissingSteps {
  readonly first: number;
  readonly last: number;
  readonly why: string;
}

/** Count, mean, central moments and extremes of the finite values; mean and extremes NaN without any. */
export interface ITensorMoments {
  readonly count: number;
  readonly mean: number;
  readonly m2: number;
  readonly m3: number;
  readonly m4: number;
  readonly min: number;
  readonly max: number;
}

/** One traced tensor as the browser keeps it. */
export interface ITensorRow {
  readonly step: number;
  readonly microBatch: number;
  readonly phase: Phase;
  readonly pass: Pass;
  readonly rank: number;
  readonly layer: number;
  readonly flag: string;
  readonly part: string;
  readonly compressor: string;
  /** Shape of the whole tensor, [B, S, *]. */
  readonly sourceShape: readonly number[];
  /** Shape of `values`, row-major; the first axis is the samples kept. */
  readonly shape: readonly number[];
  /** The compressed tensor, flat and read-only. Empty, with its sums remembered, in a reduced row. */
  readonly values: Float32Array;
  readonly labels: readonly string[];
  readonly nanCount: number;
  readonly infCount: number;
  /** Compression error as a fraction of the tensor's root mean square; NaN where it was not measured. */
  readonly compressionError: number;
  /** Call of its layer within the forward pass; of gradients of later backward passes behind all calls. */
  readonly call: number;
  /** Of the whole tensor, before sampling and compression; null where it is not known. */
  readonly whole: ITensorMoments | null;
  /** Set where the values were given up to stay within memory; their statistics are still known. */
  readonly reduced?: true;
}

/** Which tensors a view wants. */
export interface ITensorQuery extends Omit<StreamRequest, 'where' | 'columns' | 'limit_bytes'> {
  readonly flag: string;
  /** Also rows whose values were given up: for statistics, which are remembered. */
  readonly reduced?: boolean;
}

export interface ITensorShape {
  readonly parts: readonly string[];
  /** Ascending. */
  readonly layers: readonly number[];
  readonly ranks?: readonly number[];
  /** Absent where there are forward passes only. */
  readonly passes?: readonly Pass[];
}

export type StepsQuery = Pick<ITensorQuery, 'layers' | 'pass' | 'rank'>;

/** What a bounded store still has of what a query names. */
export interface IKept {
  /** Newest step with a thinned-out tensor: every later one is complete. Null while everything is. */
  readonly thinnedTo: number | null;
  /** Rows of which only the statistics are left. */
  readonly reducedRows: number;
  /** Bytes that the whole run's tensors take now, and their bound. */
  readonly bytes: number;
  readonly limitBytes: number;
}

/** What is known of lines of which only the extremes are held. */
export interface IThinnedLines {
  /** Steps at which the line of a layer begins anew, by its number. */
  readonly starts: Readonly<Record<string, readonly number[]>>;
  /** Steps that there were. */
  readonly total: number;
}

/** What a tensor query found, and what it could not. */
export interface ITensorResult {
  /** Set where of long lines only the extremes are here. */
  readonly thinned?: IThinnedLines;
  /** Ordered by step, then micro-batch, then layer. */
  readonly rows: readonly ITensorRow[];
  /** Rows of the query that were once there and of which nothing is left, to stay within memory. */
  readonly evictedRows: number;
  /** Set when not every row was sent: only every n-th step is here, with this n. */
  readonly sampledEvery: number;
  /** Of sources that keep a bounded history. */
  readonly kept?: IKept;
  /** Newest step whose rows may lack although not thinned out: never received, or gone. Absent if none. */
  readonly lackingTo?: number;
  /** Steps that are known to be missing, and that nobody has. */
  readonly missing?: readonly IMissingSteps[];
}

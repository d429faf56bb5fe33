import type { ISignal } from '@lumino/signaling';
import type { CloseReason } from '../client/hub-state';
import type { Ask, IQuestion } from '../client/question';
import type {
  Configured,
  ConfigPatch,
  GenerateRequest,
  Hello,
  Pass,
  Phase,
  Status
} from '../protocol/messages.generated';
import type { IMissingSteps, IScalarAnswer, IScalarQuery, ITrendAnswer, ITrendQuery } from './line-data';
import type { IMomentSource } from './moment-source';
import type { IRowsQuery, IStreamRows } from './row-store';
import type { IAuditEvent, IRunEvent } from './run-events';
import type { RunLink } from './run-link';

/** Whether a run takes changes now: it is live and its training has not ended. */
export function takesChanges(source: IRunSource): boolean {
  const { kind } = source.connection;
  return (kind === 'live' || kind === 'stale') && !isOver(source);
}

/** Whether a run's training has ended, as far as is known here: it is recorded, or said so. */
export function isOver({ connection, status }: Pick<IRunSource, 'connection' | 'status'>): boolean {
  return (
    connection.kind === 'recorded' ||
    (connection.kind === 'closed' && connection.reason === 'finished') ||
    status?.state === 'finished' ||
    status?.state === 'lost'
  );
}

/** How a source stands to its run, as the user is told. */
export type ConnectionState =
  /** The first hello has not come yet. */
  | { kind: 'connecting' }
  /** Live, frames may arrive. */
  | { kind: 'live' }
  /** Live, but no frame for 3 s; `since` is the last one's time, milliseconds since the epoch. */
  | { kind: 'stale'; since: number }
  /** The link broke; `attempt` counts the tries to come back. */
  | { kind: 'reconnecting'; attempt: number; message: string }
  /** A closed run read from its folder. */
  | { kind: 'recorded' }
  /** It will not come back by itself: the run ended, the hub is gone, the versions differ, access was refused. */
  | { kind: 'closed'; reason: CloseReason; message: string };

/** What changed in a source. `rows` comes at most every 16 ms. */
export type SourceChange =
  | { kind: 'hello' }
  | { kind: 'status' }
  | { kind: 'connection' }
  | { kind: 'rows'; stream: string; firstStep: number; lastStep: number }
  | { kind: 'configured'; message: Configured };

/** Count, mean, central moments and extremes of all finite values of a tensor. Mean and extremes are NaN where it has none. */
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
  /** The compressed tensor, flat. Not to be changed by readers. Empty, with its sums remembered, in a reduced row. */
  readonly values: Float32Array;
  readonly labels: readonly string[];
  readonly nanCount: number;
  readonly infCount: number;
  /** What the compressor lost, as a fraction of the tensor's root mean square; NaN where it was not measured. */
  readonly compressionError: number;
  /** Of the whole tensor, before samples were chosen and anything was compressed; null where it is not known. */
  readonly whole: ITensorMoments | null;
  /** Set where the values were given up to stay within memory; their statistics are still known. */
  readonly reduced?: true;
}

/** Which tensors a view wants. Absent members match everything. */
export interface ITensorQuery {
  flag: string;
  part?: string;
  layers?: readonly number[];
  phase?: Phase;
  pass?: Pass;
  /** Rows of one rank, or of each layer those of the lowest rank that has it. */
  rank?: number | 'lowest';
  /** Inclusive first and last step. */
  steps?: readonly [number, number];
  /** Of each layer only the newest row, up to the last step, whose compression error was measured. */
  measured?: boolean;
  /** Blocks that rows of `Peaks` need at most along an axis: a recording answers no finer ones, whose `compressor` then says of what they are made. */
  peaks?: number;
  /** Also rows whose values were given up: for statistics, which are remembered. */
  reduced?: boolean;
}

/** What a source has of a flag. */
export interface ITensorShape {
  readonly parts: readonly string[];
  /** Ascending. */
  readonly layers: readonly number[];
  /** Ranks that sent rows, ascending; absent where there is one. */
  readonly ranks?: readonly number[];
  /** Absent where there are forward passes only. */
  readonly passes?: readonly Pass[];
}

/** Which rows' steps are wanted. */
export type StepsQuery = Pick<ITensorQuery, 'layers' | 'pass' | 'rank'>;

/** What a bounded store still has of what a query names. */
export interface IKept {
  /** Newest step of which some tensor was thinned out: every later one is there in full. Null while everything is. */
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
  /** Newest step of which rows may be lacking that nobody thinned out here: older ones were never here, or are gone. Absent where nothing is. */
  readonly lackingTo?: number;
  /** Steps that are known to be missing, and that nobody has. */
  readonly missing?: readonly IMissingSteps[];
}

/** Scalars as columns, ordered by step within a name. All arrays have one length. */
export interface IScalarColumns {
  readonly step: Float64Array;
  /** Seconds since the epoch. */
  readonly time: Float64Array;
  readonly value: Float64Array;
  readonly name: readonly string[];
  /** Unit by name. */
  readonly units: Readonly<Record<string, string>>;
  /** Rows between local minima and maxima that were given up to stay within memory, over all names; absent is none. */
  readonly thinned?: number;
}

/** What became of a request to write text. */
export interface IGenerationStart {
  /** Its number. */
  readonly generation: number;
  /** Number of the clean one beside it, where there is a perturbation; null where there is none. */
  readonly control: number | null;
}

/**
 * A run as the views see it, live or recorded. Views, charts and panel know runs only through this.
 *
 * Queries answer from memory where they can; a recorded source asks the server for just the rows that it lacks.
 * They reject with a `StoreError` that says what to do.
 */
export interface IRunSource {
  readonly id: string;
  readonly name: string;
  readonly hello: Hello | null;
  readonly status: Status | null;
  readonly connection: ConnectionState;
  readonly changed: ISignal<IRunSource, SourceChange>;
  /** The newest event of each action of a live run's audit; absent where nobody can act. */
  readonly audit?: ReadonlyMap<string, IAuditEvent>;
  /** The statistics of the run; absent where this kind of source has none. Changes are told as `rows` of the stream `moments`. */
  readonly moments?: IMomentSource;
  /** What the views of this run tell one another; absent where there is one view only. */
  readonly link?: RunLink;
  /** Steps for which a flag has tensors, ascending. */
  steps(flag: string, phase?: Phase, of?: StepsQuery): Promise<readonly number[]>;
  /** What there is of a flag so far. */
  shapeOf(flag: string): Promise<ITensorShape>;
  tensors(query: ITensorQuery, signal?: AbortSignal): Promise<ITensorResult>;
  scalars(names?: readonly string[] | null): Promise<IScalarColumns>;
  /**
   * A statistic of tensors over steps, as lines. Absent where `tensors` has the rows at hand: `readTrend` in `aggregate/` makes the same answer of them.
   */
  trend?(query: ITrendQuery, signal?: AbortSignal): Promise<ITrendAnswer>;
  /** Scalars as lines. Absent where `scalars` has all rows at hand: `readScalars` in `aggregate/` makes the same answer of them. */
  scalarLines?(query: IScalarQuery, signal?: AbortSignal): Promise<IScalarAnswer>;
  /**
   * The part of a trend that the recording has and `tensors` has not; null where there is none. Of a run whose `tensors` has the rows at hand.
   *
   * @param upTo - Newest step of which `tensors` may lack something.
   */
  trendBefore?(query: ITrendQuery, upTo: number, signal?: AbortSignal): Promise<ITrendAnswer | null>;
  /** What happened to the run, by step: changes, perturbations, pauses, what was lost. Absent where nobody knows. */
  events?(): Promise<readonly IRunEvent[]>;
  /** Rows of a stream by its name in `hello.streams`; a live run gives those of streams without a method of their own. */
  table(stream: string, query?: IRowsQuery, signal?: AbortSignal): Promise<IStreamRows>;
  /** How the recording is asked a question of an instrument; absent, or undefined, where nobody answers it. */
  asker?<R extends object, A>(question: IQuestion<R, A>): Ask<R, A> | undefined;
  /**
   * Ask for a change. Resolves when it is applied; `accepted` is called with the step from which it can apply.
   * Rejects with the hub's typed error.
   */
  configure(patch: ConfigPatch, accepted?: (message: Configured) => void): Promise<Configured>;
  /**
   * Have the model write text. Absent where nobody can be asked: of recorded runs, and of those whose `hello.controls` lacks `generate`.
   * How it goes is told by rows of the stream `generations`. Rejects with the typed error of the hub or of the producer.
   */
  generate?(request: GenerateRequest): Promise<IGenerationStart>;
  /** End a generation that waits or runs; as `generate`. */
  cancelGeneration?(generation: number): Promise<void>;
  readonly isDisposed: boolean;
  dispose(): void;
}

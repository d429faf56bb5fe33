import type { Pass, Phase } from '../protocol/messages.generated';
import type { StreamRequest } from '../protocol/requests.generated';
import { badFrame } from '../protocol/frame';
import type { StreamTable } from '../protocol/frame-table';

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

/** How many moments of the whole tensor stand between the compression error and the call. */
const MOMENTS = 7;

/**
 * The rows of a `tensors` table. Their values are views of the table's memory.
 * @throws ProtocolError `bad-frame` when a row contradicts itself.
 */
export function tensorRows(table: StreamTable): ITensorRow[] {
  const [
    step,
    microBatch,
    phase,
    pass,
    rank,
    layer,
    flag,
    part,
    compressor,
    sourceShape,
    shape,
    values,
    labels,
    nans,
    infs,
    errors,
    ...later
  ] = table.children;
  const [call, whole] = [later[MOMENTS], later.slice(0, MOMENTS)];
  return Array.from({ length: table.numRows }, (_, row) => {
    const retained: ArrayLike<number> = shape?.at(row) ?? [];
    const flat: unknown = values?.at(row);
    const [phaseName, passName] = [String(phase?.at(row)), String(pass?.at(row))];
    if (!(flat instanceof Float32Array) || !isPhase(phaseName) || !isPass(passName)) {
      throw badFrame('A tensors row has an unknown phase or pass.', {
        expected: [...PHASES, ...PASSES].join(', '),
        got: `${phaseName}, ${passName}`.slice(0, 200)
      });
    }
    const size = Array.prototype.reduce.call(retained, (product, edge) => Number(product) * Number(edge), 1);
    if (size !== flat.length) {
      throw badFrame('A tensors row has another number of values than its shape says.', {
        expected: String(size),
        got: String(flat.length)
      });
    }
    return {
      step: Number(step?.at(row)),
      microBatch: Number(microBatch?.at(row)),
      phase: phaseName,
      pass: passName,
      rank: Number(rank?.at(row)),
      layer: Number(layer?.at(row)),
      flag: String(flag?.at(row)),
      part: String(part?.at(row)),
      compressor: String(compressor?.at(row)),
      sourceShape: Array.from<number>(sourceShape?.at(row) ?? []),
      shape: Array.from(retained),
      values: flat,
      labels: Array.from<string>(labels?.at(row) ?? []),
      nanCount: Number(nans?.at(row)),
      infCount: Number(infs?.at(row)),
      compressionError: Number(errors?.at(row) ?? NaN),
      call: Number(call?.at(row) ?? 0),
      whole: wholeOf(whole.map(column => Number(column.at(row))))
    };
  });
}

/** Moments of a whole tensor from their columns; null where nobody measured it. */
function wholeOf(columns: readonly number[]): ITensorMoments | null {
  const [count = NaN, mean = NaN, m2 = NaN, m3 = NaN, m4 = NaN, min = NaN, max = NaN] = columns;
  return Number.isNaN(count) ? null : { count, mean, m2, m3, m4, min, max };
}

/** The order in which queries answer: step, micro-batch, layer; then part, pass, rank and call. */
export function compareRows(a: ITensorRow, b: ITensorRow): number {
  return (
    a.step - b.step ||
    a.microBatch - b.microBatch ||
    a.layer - b.layer ||
    (a.part < b.part ? -1 : a.part > b.part ? 1 : 0) ||
    (a.pass < b.pass ? 1 : a.pass > b.pass ? -1 : 0) ||
    a.rank - b.rank ||
    a.call - b.call
  );
}

const isPhase = (text: string): text is Phase => PHASES.some(each => each === text);

const isPass = (text: string): text is Pass => PASSES.some(each => each === text);

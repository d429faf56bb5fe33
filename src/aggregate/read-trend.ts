import type { ITrendAnswer, ILayerLine } from '../store/line-data';
import type { IRunSource } from '../store/source';
import type { ITensorRow, ITensorResult } from '../store/tensor-data';
import { thinLine, gapStarts, joinStarts, indexAt, picked } from './read-scalars';
import { isSelective } from './group';
import { byLayer, mapLine, trendOf, type ITrend } from './trend';
import type { TrendRequest } from '../protocol/requests.generated';

/** Newest steps that are read each time: more rows of them may come. */
const OPEN_STEPS = 16;
/** Steps beyond which what was settled is read anew, with all that came since. */
const MOST_STEPS = 256;
const MOST_KEPT = 8;

/** An answer that leaves no point out which is here, with the rows that it is of. */
interface ITrendRead {
  readonly answer: ITrendAnswer;
  readonly rows: readonly ITensorRow[];
}

interface IWatched {
  /** First step of which rows came since it was read. */
  from: number;
}

interface ILineEnd {
  /** The newest row, without its values. */
  readonly row: ITensorRow;
  /** Steps to the one before; NaN where that is not known. */
  readonly distance: number;
}

interface ISettled extends IWatched {
  /** Up to `upTo`, with no more points than were asked for. */
  readonly answer: ITrendAnswer;
  readonly upTo: number;
  /** Of each layer up to there. */
  readonly ends: ReadonlyMap<number, ILineEnd>;
}

const FOLLOWED = new WeakMap<IRunSource, FollowedTrends>();

/**
 * The trends of a run that goes on: what is long past is made once, so that a step more costs the same after
 * an hour as in the first minute.
 */
class FollowedTrends {
  static of(source: IRunSource): FollowedTrends {
    const known = FOLLOWED.get(source) ?? new FollowedTrends(source);
    FOLLOWED.set(source, known);
    return known;
  }

  private constructor(private readonly _source: IRunSource) {
    // This lives as long as the run, which lets go of all who listen.
    _source.changed.connect((_, change) => {
      const isOfTensors = change.kind === 'rows' && change.stream === 'tensors';
      const from = isOfTensors ? change.firstStep : change.kind === 'hello' ? -Infinity : Infinity;
      for (const each of [...this._settled.values(), ...this._reading]) {
        each.from = Math.min(each.from, from);
      }
    });
  }

  /** Answer a question whose steps have no end, or which leaves points out. */
  async read(query: TrendRequest, readWhole: () => Promise<ITrendRead>): Promise<ITrendAnswer> {
    const key = JSON.stringify(query);
    const settled = this._settled.get(key);
    const answer = settled && settled.from > settled.upTo ? await this._extend(settled, query) : null;
    if (answer) {
      return answer;
    }
    this._settled.delete(key);
    const watched: IWatched = { from: Infinity };
    this._reading.add(watched);
    try {
      const whole = await readWhole();
      const found = settle(whole, query);
      if (found && watched.from > found.upTo) {
        this._settled.set(key, { ...found, from: watched.from });
        [...this._settled.keys()].slice(0, -MOST_KEPT).forEach(old => this._settled.delete(old));
      }
      return thinTrend(whole.answer, query.points);
    } finally {
      this._reading.delete(watched);
    }
  }

  /** What is settled with what came since; null where that is not all. */
  private async _extend(settled: ISettled, query: TrendRequest): Promise<ITrendAnswer | null> {
    const { answer: before, upTo, ends } = settled;
    const { statistic, selection, points, ...of } = query;
    const steps = [upTo + 1, query.steps?.[1] ?? Infinity] as const;
    const result = await this._source.tensors({ ...of, steps, reduced: true });
    const later = await trendOfRows(result, { statistic, selection });
    const isAll =
      settled.from > upTo &&
      (result.lackingTo ?? -Infinity) <= upTo &&
      later.total <= MOST_STEPS &&
      (later.kept === before.kept || later.newest === null);
    if (!isAll) {
      return null;
    }
    const firsts = new Map([...result.rows].reverse().map(row => [row.layer, row]));
    const { memory, evictedRows } = before;
    const joined = joinTrends(before, later, layer => ({
      changed: isOther(ends.get(layer)?.row, firsts.get(layer)),
      distance: ends.get(layer)?.distance ?? NaN
    }));
    return thinTrend({ ...joined, evictedRows, ...(memory && { memory }) }, points);
  }

  private readonly _settled = new Map<string, ISettled>();
  private readonly _reading = new Set<IWatched>();
}

function settle({ answer, rows }: ITrendRead, { points }: TrendRequest): Omit<ISettled, 'from'> | null {
  const upTo = (rows[rows.length - 1]?.step ?? -Infinity) - OPEN_STEPS;
  const ends = new Map<number, ILineEnd>();
  const open = new Set<number>();
  for (const row of rows) {
    if (row.step > upTo) {
      open.add(row.step);
      continue;
    }
    const last = ends.get(row.layer);
    const distance = last?.row.step === row.step ? last.distance : row.step - (last?.row.step ?? NaN);
    ends.set(row.layer, { row: { ...row, values: NO_VALUES, labels: [] }, distance });
  }
  if (ends.size === 0) {
    return null;
  }
  const settled = {
    ...cutTrend(answer, [-Infinity, upTo]),
    total: answer.total - open.size,
    missing: answer.missing.filter(({ last }) => last <= upTo)
  };
  return { answer: thinTrend(settled, points), upTo, ends };
}

const NO_VALUES = new Float32Array(0);

/** Ask a run for lines of a statistic: of the run itself where it can answer, else made of its tensors. */
export async function readTrend(
  source: IRunSource,
  query: TrendRequest,
  signal?: AbortSignal
): Promise<ITrendAnswer> {
  if (source.trend) {
    return source.trend(query, signal);
  }
  // A few steps in full are asked for once, where somebody points.
  const isPart = query.points === undefined && query.steps !== undefined;
  const whole = (): Promise<ITrendRead> => readWhole(source, query, signal);
  return isPart ? (await whole()).answer : FollowedTrends.of(source).read(query, whole);
}

/** Make lines of all rows that are here, behind what only the recording has. */
async function readWhole(
  source: IRunSource,
  query: TrendRequest,
  signal: AbortSignal | undefined
): Promise<ITrendRead> {
  const { statistic, selection, points: _, ...of } = query;
  const result = await source.tensors({ ...of, reduced: true }, signal);
  // What is only remembered of a tensor is of its whole.
  const selective = selection && result.rows.some(row => isSelective(row, selection));
  const upTo = Math.max(
    result.lackingTo ?? -Infinity,
    selective ? (result.kept?.thinnedTo ?? -Infinity) : -Infinity
  );
  const before = upTo > 0 ? await source.trendBefore?.(query, upTo, signal) : null;
  const rows = before ? result.rows.filter(row => row.step > upTo) : result.rows;
  // What memory gave up is in the recording: nothing that is left here has holes of its own.
  const answer = await trendOfRows(before ? { ...result, rows, evictedRows: 0 } : result, {
    statistic,
    selection
  });
  signal?.throwIfAborted();
  if (!before) {
    return { answer, rows };
  }
  // The earlier points may be thinned out: only the later ones say how far apart steps are.
  const joint: ILineJoint = { changed: isOther(before.newest, rows[0]), distance: NaN };
  return { answer: { ...joinTrends(before, answer, () => joint), evictedRows: 0 }, rows };
}

/** Make the lines of a trend of tensors that are at hand. */
export async function trendOfRows(
  { rows, evictedRows, sampledEvery, missing = [], kept: memory, thinned }: ITensorResult,
  { statistic, selection, points }: Pick<TrendRequest, 'statistic' | 'selection' | 'points'>
): Promise<ITrendAnswer> {
  const columns = asDrawn(await trendOf(rows, statistic, selection), statistic);
  const changes = changesOf(rows);
  // Where rows were given up it is not known which steps there were.
  const sparseTo = evictedRows > 0 ? (memory?.thinnedTo ?? Infinity) : -Infinity;
  const lines = byLayer(columns).map(line => {
    const stepAt = (at: number): number => line.steps[at] ?? NaN;
    const changed = Array.from(line.steps.keys()).filter(
      at => at > 0 && changes.get(line.layer)?.has(stepAt(at))
    );
    // Of thinned lines distances say nothing of gaps.
    const known = thinned?.starts[line.layer];
    const gaps = known
      ? Array.from(line.steps.keys()).filter(at => at > 0 && known.includes(stepAt(at)))
      : line.starts.filter(at => stepAt(at) > sparseTo);
    const starts = joinStarts(gaps, changed);
    return thin({ ...line, starts }, points);
  });
  return {
    lines,
    total: Math.max(thinned?.total ?? 0, new Set(columns.step).size * Math.max(1, sampledEvery)),
    missing,
    kept: columns.isKept,
    compressors: [...new Set(rows.map(row => row.compressor))],
    ranks: [...new Set(rows.map(row => row.rank))].sort((a, b) => a - b),
    newest: rows[rows.length - 1] ?? null,
    units: columns.units?.[columns.units.length - 1] ?? 0,
    evictedRows,
    sampledEvery,
    ...(memory ? { memory } : {})
  };
}

/**
 * A trend without the numbers of steps and layers of which fewer values are finite than not: what a few
 * finite ones are left with, often 0, is not what the tensor did.
 */
function asDrawn(columns: ITrend, statistic: TrendRequest['statistic']): ITrend {
  const { value, count, nonFinite } = columns;
  const known = (each: number, at: number): number => ((nonFinite[at] ?? 0) > (count[at] ?? 0) ? NaN : each);
  return statistic.endsWith('nonfinite') ? columns : { ...columns, value: value.map(known) };
}

/** What is known where a line continues an earlier one. */
export interface ILineJoint {
  /** Whether the later tensors were made in another way than the earlier ones. */
  readonly changed: boolean;
  /** Steps between the earlier line's last two tensors; NaN where that is not known. */
  readonly distance: number;
}

/** Put lines behind earlier ones. */
function joinTrends(
  before: ITrendAnswer,
  later: ITrendAnswer,
  jointOf: (layer: number) => ILineJoint
): ITrendAnswer {
  const layers = new Map(before.lines.map(line => [line.layer, line]));
  for (const line of later.lines) {
    const old = layers.get(line.layer);
    layers.set(line.layer, old ? joinLines(old, line, jointOf(line.layer)) : line);
  }
  const { memory: _, ...rest } = later;
  return {
    ...rest,
    lines: [...layers.values()].sort((a, b) => a.layer - b.layer),
    total: before.total + later.total,
    missing: [...before.missing, ...later.missing],
    kept: before.kept || later.kept,
    compressors: [...new Set([...before.compressors, ...later.compressors])],
    ranks: [...new Set([...before.ranks, ...later.ranks])].sort((a, b) => a - b),
    newest: later.newest ?? before.newest,
    units: later.newest ? later.units : before.units
  };
}

function joinLines(old: ILayerLine, line: ILayerLine, { changed, distance }: ILineJoint): ILayerLine {
  const length = old.steps.length;
  const joined = (before: Float64Array, later: Float64Array): Float64Array => {
    const all = new Float64Array(length + later.length);
    all.set(before);
    all.set(later, length);
    return all;
  };
  const last = old.steps[length - 1] ?? NaN;
  const gap = gapStarts([last - distance, last, ...line.steps.subarray(0, 2)]).includes(2);
  return {
    layer: line.layer,
    steps: joined(old.steps, line.steps),
    values: joined(old.values, line.values),
    nonFinite: joined(old.nonFinite, line.nonFinite),
    ...(old.half && line.half ? { half: joined(old.half, line.half) } : {}),
    starts: [
      ...old.starts,
      ...(length > 0 && (gap || changed) ? [length] : []),
      ...line.starts.map(at => at + length)
    ]
  };
}

export function cutTrend(
  answer: ITrendAnswer,
  [first, last]: readonly [number, number] = [-Infinity, Infinity]
): ITrendAnswer {
  const lines = answer.lines.map((line): ILayerLine => {
    const from = indexAt(line.steps, first - 1) + 1;
    const to = indexAt(line.steps, last) + 1;
    const starts = line.starts.filter(at => at > from && at < to).map(at => at - from);
    return mapLine(line, column => column.slice(from, to), starts);
  });
  return { ...answer, lines: lines.filter(({ steps }) => steps.length > 0) };
}

function thin(line: ILayerLine, points: number | undefined): ILayerLine {
  if (points === undefined || line.steps.length <= points) {
    return line;
  }
  const { kept, starts } = thinLine(line.steps, line.values, line.starts, points);
  return mapLine(line, column => picked(column, kept), starts);
}

function thinTrend(answer: ITrendAnswer, points: number | undefined): ITrendAnswer {
  return { ...answer, lines: answer.lines.map(line => thin(line, points)) };
}

/**
 * Steps at which a layer's tensors came from another compressor, or another number of samples, than those
 * before.
 */
function changesOf(rows: readonly ITensorRow[]): Map<number, Set<number>> {
  const before = new Map<number, ITensorRow>();
  const changes = new Map<number, Set<number>>();
  for (const row of rows) {
    const last = before.get(row.layer);
    before.set(row.layer, row);
    if (isOther(last, row)) {
      changes.set(row.layer, (changes.get(row.layer) ?? new Set()).add(row.step));
    }
  }
  return changes;
}

/**
 * Whether two tensors were made in different ways: by another compressor, or of another number of samples.
 */
function isOther(one: ITrendMade | null | undefined, other: ITrendMade | undefined): boolean {
  const samples = ({ reduced, shape }: ITrendMade): number => (reduced ? NaN : (shape[0] ?? NaN));
  return (
    !!one && !!other && (one.compressor !== other.compressor || Math.abs(samples(one) - samples(other)) > 0)
  );
}

type ITrendMade = Pick<ITensorRow, 'compressor' | 'shape'> & Partial<Pick<ITensorRow, 'reduced'>>;

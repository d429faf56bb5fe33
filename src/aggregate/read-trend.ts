import type { ILayerLine, ITrendAnswer, ITrendQuery } from '../store/line-data';
import type { IRunSource, ITensorResult, ITensorRow } from '../store/source';
import { thinLine } from './decimate';
import { FollowedTrends, type ITrendRead } from './followed-trend';
import { gapStarts, joinStarts, placeAt } from './line-gaps';
import { isSelective } from './selection';
import { byLayer, mapLine, trendOf } from './trend';

/** Ask a run for lines of a statistic: of the run itself where it can answer, else made of its tensors. */
export async function readTrend(
  source: IRunSource,
  query: ITrendQuery,
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
  query: ITrendQuery,
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
  { statistic, selection, points }: Pick<ITrendQuery, 'statistic' | 'selection' | 'points'>
): Promise<ITrendAnswer> {
  const columns = await trendOf(rows, statistic, selection);
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

/** What is known of the place where a line is put behind an earlier one. */
export interface ILineJoint {
  /** Whether the later tensors were made in another way than the earlier ones. */
  readonly changed: boolean;
  /** Steps between the earlier line's last two tensors; NaN where that is not known. */
  readonly distance: number;
}

/**
 * Put lines behind earlier ones.
 *
 * @param jointOf - By layer.
 */
export function joinTrends(
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

/** The part of a trend between two steps. */
export function cutTrend(
  answer: ITrendAnswer,
  [first, last]: readonly [number, number] = [-Infinity, Infinity]
): ITrendAnswer {
  const lines = answer.lines.map((line): ILayerLine => {
    const from = placeAt(line.steps, first - 1) + 1;
    const to = placeAt(line.steps, last) + 1;
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
  return mapLine(line, column => Float64Array.from(kept, at => column[at] ?? NaN), starts);
}

/** The same lines with about as many points as are wanted. */
export function thinTrend(answer: ITrendAnswer, points: number | undefined): ITrendAnswer {
  return { ...answer, lines: answer.lines.map(line => thin(line, points)) };
}

/** Steps at which a layer's tensors came from another compressor, or another number of samples, than those before. */
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

/** Whether two tensors were made in different ways: by another compressor, or of another number of samples. */
export function isOther(one: ITrendMade | null | undefined, other: ITrendMade | undefined): boolean {
  const samples = ({ reduced, shape }: ITrendMade): number => (reduced ? NaN : (shape[0] ?? NaN));
  return (
    !!one && !!other && (one.compressor !== other.compressor || Math.abs(samples(one) - samples(other)) > 0)
  );
}

type ITrendMade = Pick<ITensorRow, 'compressor' | 'shape'> & Partial<Pick<ITensorRow, 'reduced'>>;

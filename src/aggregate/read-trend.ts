import type { ILayerLine, ITrendAnswer, ITrendQuery, ITrendTensor } from '../store/line-data';
import type { IRunSource, ITensorResult, ITensorRow } from '../store/source';
import { thinLine } from './decimate';
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
  const { statistic: _, selection, points, ...of } = query;
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
  const answer = before
    ? await trendOfRows({ ...result, rows, evictedRows: 0 }, { ...query, points: undefined })
    : await trendOfRows(result, query);
  signal?.throwIfAborted();
  return before ? thinTrend(joinTrends(before, answer, rows[0] ?? null), points) : answer;
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

/**
 * Put lines behind earlier ones.
 *
 * @param first - The first row of the later ones; null where there is none.
 */
function joinTrends(before: ITrendAnswer, later: ITrendAnswer, first: ITrendTensor | null): ITrendAnswer {
  const changed =
    first !== null &&
    before.newest !== null &&
    (first.compressor !== before.newest.compressor || first.shape[0] !== before.newest.shape[0]);
  const layers = new Map(before.lines.map(line => [line.layer, line]));
  for (const line of later.lines) {
    const old = layers.get(line.layer);
    layers.set(line.layer, old ? joinLines(old, line, changed) : line);
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
    units: later.newest ? later.units : before.units,
    evictedRows: 0
  };
}

function joinLines(old: ILayerLine, line: ILayerLine, changed: boolean): ILayerLine {
  const length = old.steps.length;
  const joined = (name: 'steps' | 'values' | 'nonFinite'): Float64Array =>
    Float64Array.from([...old[name], ...line[name]]);
  const steps = joined('steps');
  // The earlier points may be thinned out: only the later ones say how far apart steps are.
  const gap = gapStarts(steps.subarray(Math.max(0, length - 1))).includes(1);
  const half = old.half && line.half ? { half: Float64Array.from([...old.half, ...line.half]) } : {};
  return {
    layer: line.layer,
    steps,
    values: joined('values'),
    nonFinite: joined('nonFinite'),
    ...half,
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

function thinTrend(answer: ITrendAnswer, points: number | undefined): ITrendAnswer {
  return { ...answer, lines: answer.lines.map(line => thin(line, points)) };
}

/** Steps at which a layer's tensors came from another compressor, or another number of samples, than those before. */
function changesOf(rows: readonly ITensorRow[]): Map<number, Set<number>> {
  const before = new Map<number, ITensorRow>();
  const changes = new Map<number, Set<number>>();
  for (const row of rows) {
    const last = before.get(row.layer);
    before.set(row.layer, row);
    const samples = (each: ITensorRow): number => (each.reduced ? NaN : (each.shape[0] ?? NaN));
    if (last && (last.compressor !== row.compressor || Math.abs(samples(last) - samples(row)) > 0)) {
      changes.set(row.layer, (changes.get(row.layer) ?? new Set()).add(row.step));
    }
  }
  return changes;
}

import { firstIndex, own } from '../protocol/records';
import type { IScalarAnswer, IScalarLine } from '../store/line-data';
import type { IRunSource, IScalarColumns } from '../store/source';
import type { ScalarsRequest } from '../protocol/requests.generated';

/** A gap is wider than so many times the wider of the two distances beside it. */
const WIDER = 1.5;

/**
 * Say where a line begins anew because steps are missing: at the second of two steps whose distance is more
 * than 1.5 times the larger of the distances next to it. It needs no knowledge of how often anything is
 * traced. Python's twin reads the same `protocol/fixtures/lines/`. Takes ascending steps; returns ascending
 * indices.
 */
export function gapStarts(steps: ArrayLike<number>): number[] {
  const distance = (at: number): number => (steps[at + 1] ?? NaN) - (steps[at] ?? NaN);
  const starts: number[] = [];
  for (let at = 1; at < steps.length; at += 1) {
    // Without a list for each step: a live run asks again with every picture.
    const [before, after] = [distance(at - 2), distance(at)];
    const wider = before >= after || Number.isNaN(after) ? before : after;
    if (distance(at - 1) > WIDER * wider) {
      starts.push(at);
    }
  }
  return starts;
}

/** Ascending indices that are in one of several lists. */
export function joinStarts(...lists: readonly (readonly number[])[]): number[] {
  return [...new Set(lists.flat())].sort((a, b) => a - b);
}

/** Index of a step among ascending ones, or of the newest before it; -1 where all are later. */
export function indexAt(steps: ArrayLike<number>, step: number): number {
  return firstIndex(steps.length, at => !((steps[at] as number) <= step)) - 1;
}

interface IDecimation {
  /** Indices of the points that stay, ascending. */
  readonly kept: Uint32Array;
  /** Points that were there. */
  readonly of: number;
}

/** Steps of the least blocks whose extremes summaries keep, as in `megalens/protocol/segments.py`. */
const LEAST_BLOCK = 64;

/**
 * Choose about `points` of a line so that it looks as the line through all of them: of each of many equal
 * spans of the ascending `x` the first, the last, the least, the greatest and every non-finite run's start
 * stay. No extreme of the whole is ever lost.
 *
 * @param blocks - Whether long spans are whole blocks of steps, as the server's are, which reads summaries.
 */
export function decimate(
  x: Float64Array,
  y: Float64Array,
  points: number,
  blocks: boolean = false
): IDecimation {
  const { length } = y;
  if (length <= points) {
    return { kept: Uint32Array.from({ length }, (_, index) => index), of: length };
  }
  const spans = Math.max(1, Math.floor(points / 4));
  const first = x[0] ?? 0;
  const even = ((x[length - 1] ?? 0) - first || 1) / spans;
  const whole = blocks && even >= LEAST_BLOCK;
  const width = whole ? 2 ** Math.ceil(Math.log2(even)) : even;
  const start = whole ? Math.floor(first / width) * width : first;
  const spanAt = (at: number) =>
    Math.min(whole ? Infinity : spans - 1, Math.floor(((x[at] ?? 0) - start) / width));
  const kept: number[] = [];
  for (let from = 0; from < length;) {
    const span = spanAt(from);
    let to = from + 1;
    while (to < length && spanAt(to) === span) {
      to += 1;
    }
    kept.push(...spanOf(y, from, to));
    from = to;
  }
  return { kept: Uint32Array.from(kept), of: length };
}

/**
 * As `decimate` for a line that breaks off at the indices `starts`: both ends of every stretch stay. Returns
 * the indices of the points that stay, and those among them at which the thinned line begins anew.
 */
export function thinLine(
  x: Float64Array,
  y: Float64Array,
  starts: readonly number[],
  points: number
): { kept: Uint32Array; starts: number[] } {
  const { kept } = decimate(x, y, points);
  if (kept.length === y.length || starts.length === 0) {
    return { kept, starts: kept.length === y.length ? [...starts] : [] };
  }
  const stay = new Set(kept);
  starts.forEach(at => stay.add(at - 1).add(at));
  const indices = Uint32Array.from(stay).sort();
  const begins = new Set(starts);
  return { kept: indices, starts: Array.from(indices.keys()).filter(at => begins.has(indices[at] ?? -1)) };
}

function spanOf(y: Float64Array, from: number, to: number): number[] {
  const stay = new Set([from, to - 1]);
  let low = -1;
  let high = -1;
  for (let index = from; index < to; index += 1) {
    const value = y[index] ?? Number.NaN;
    if (!Number.isFinite(value)) {
      if (index === from || Number.isFinite(y[index - 1])) {
        stay.add(index);
      }
      continue;
    }
    low = low < 0 || value < (y[low] ?? 0) ? index : low;
    high = high < 0 || value > (y[high] ?? 0) ? index : high;
  }
  stay.add(low).add(high).delete(-1);
  return [...stay].sort((a, b) => a - b);
}

/** The names that a view draws: those that it names, else every name that has 'loss' in it, else all. */
export function chosenNames(present: Iterable<string>, names?: readonly string[] | null): string[] {
  const all = [...new Set(present)];
  if (names) {
    return names.filter(name => all.includes(name));
  }
  const losses = all.filter(name => name.includes('loss'));
  return losses.length > 0 ? losses : all;
}

/** Ask a run for scalars as lines: of the run itself where it can answer, else made of its rows. */
export async function readScalars(
  source: IRunSource,
  query: ScalarsRequest,
  signal?: AbortSignal
): Promise<IScalarAnswer> {
  if (source.scalarLines) {
    return source.scalarLines(query, signal);
  }
  const columns = await source.scalars(null);
  const { thinned, units } = columns;
  return { lines: scalarLines(columns, query), units, missing: [], ...(thinned ? { thinned } : {}) };
}

export function scalarLines(columns: IScalarColumns, query: ScalarsRequest): IScalarLine[] {
  const names = query.names ?? Object.keys(columns.units);
  return names.flatMap(name => lineOf(columns, name, query));
}

const ROWS = new WeakMap<IScalarColumns, Map<string, number[]>>();

/** Indices of the rows of each name, found once for the same columns. */
function rowsByName(columns: IScalarColumns): ReadonlyMap<string, readonly number[]> {
  const known = ROWS.get(columns);
  if (known) {
    return known;
  }
  const rows = new Map<string, number[]>();
  columns.name.forEach((name, row) => {
    const of = rows.get(name) ?? [];
    of.push(row);
    rows.set(name, of);
  });
  ROWS.set(columns, rows);
  return rows;
}

/** The entries of a column at some places; NaN where it has none. */
export function picked(column: Float64Array, places: ArrayLike<number>): Float64Array {
  // Without an iterator's result for each: a live run asks again with every picture.
  const found = new Float64Array(places.length);
  for (let at = 0; at < found.length; at += 1) {
    found[at] = column[places[at] ?? -1] ?? NaN;
  }
  return found;
}

function lineOf(columns: IScalarColumns, name: string, { steps, points }: ScalarsRequest): IScalarLine[] {
  const [from, to] = steps ?? [-Infinity, Infinity];
  const rows = (rowsByName(columns).get(name) ?? []).filter(row => {
    const step = columns.step[row] ?? NaN;
    return step >= from && step <= to;
  });
  const line = {
    steps: picked(columns.step, rows),
    times: picked(columns.time, rows),
    values: picked(columns.value, rows)
  };
  if (rows.length === 0) {
    return [];
  }
  const unit = own(columns.units, name) ?? '';
  const full = { name, unit, ...line, starts: gapStarts(line.steps), total: rows.length };
  if (points === undefined || rows.length <= points) {
    return [full];
  }
  const { kept, starts } = thinLine(line.steps, line.values, full.starts, points);
  return [
    {
      ...full,
      steps: picked(line.steps, kept),
      times: picked(line.times, kept),
      values: picked(line.values, kept),
      starts
    }
  ];
}

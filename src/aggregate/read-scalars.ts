import { own } from '../protocol/records';
import type { IScalarAnswer, IScalarLine, IScalarQuery } from '../store/line-data';
import type { IRunSource, IScalarColumns } from '../store/source';
import { thinLine, gapStarts } from './decimate';

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
  query: IScalarQuery,
  signal?: AbortSignal
): Promise<IScalarAnswer> {
  if (source.scalarLines) {
    return source.scalarLines(query, signal);
  }
  const columns = await source.scalars(null);
  const { thinned, units } = columns;
  return { lines: scalarLines(columns, query), units, missing: [], ...(thinned ? { thinned } : {}) };
}

/** Scalars of a source as lines. */
export function scalarLines(columns: IScalarColumns, query: IScalarQuery): IScalarLine[] {
  const names = query.names ?? Object.keys(columns.units);
  return names.flatMap(name => lineOf(columns, name, query));
}

function lineOf(columns: IScalarColumns, name: string, { steps, points }: IScalarQuery): IScalarLine[] {
  const [from, to] = steps ?? [-Infinity, Infinity];
  const rows: number[] = [];
  columns.name.forEach((each, row) => {
    const step = columns.step[row] ?? NaN;
    if (each === name && step >= from && step <= to) {
      rows.push(row);
    }
  });
  const pick = (column: Float64Array): Float64Array => Float64Array.from(rows, row => column[row] ?? NaN);
  const line = { steps: pick(columns.step), times: pick(columns.time), values: pick(columns.value) };
  if (rows.length === 0) {
    return [];
  }
  const unit = own(columns.units, name) ?? '';
  const whole = { name, unit, ...line, starts: gapStarts(line.steps), total: rows.length };
  if (points === undefined || rows.length <= points) {
    return [whole];
  }
  const { kept, starts } = thinLine(line.steps, line.values, whole.starts, points);
  const stay = (column: Float64Array): Float64Array => Float64Array.from(kept, at => column[at] ?? NaN);
  return [
    {
      ...whole,
      steps: stay(line.steps),
      times: stay(line.times),
      values: stay(line.values),
      starts
    }
  ];
}

import { own } from '../protocol/records';
import type { IStreamInfo } from '../protocol/streams.generated';
import type { IStreamRows, RowColumn } from './row-store';
import { ascending } from './recording';
import type { ITensorResult, ITensorRow, ITensorShape } from './tensor-data';
import { compareRows } from './tensor-rows';

/** Join what the recording has of a flag with what came here. */
export function joinShapes(there: ITensorShape, here: ITensorShape): ITensorShape {
  return {
    parts: [...new Set([...there.parts, ...here.parts])],
    layers: ascending([...there.layers, ...here.layers]),
    ranks: ascending([...(there.ranks ?? []), ...(here.ranks ?? [])]),
    passes: [...new Set([...(there.passes ?? []), ...(here.passes ?? [])])]
  };
}

/** Join the recording's tensors with those that are here, each once. */
export function joinRows(
  there: ITensorResult,
  here: ITensorResult
): Pick<ITensorResult, 'rows' | 'sampledEvery' | 'evictedRows'> {
  const place = ({ step, microBatch, flag, part, phase, pass, rank, layer }: ITensorRow): string =>
    [step, microBatch, flag, part, phase, pass, rank, layer].join('\n');
  const rows = new Map(there.rows.map(row => [place(row), row]));
  here.rows.forEach(row => rows.set(place(row), row));
  return {
    rows: [...rows.values()].sort(compareRows),
    sampledEvery: there.sampledEvery,
    evictedRows: 0
  };
}

/** The columns that tell one row of a stream from another; none where nobody says. */
export function keyColumns({ policy }: IStreamInfo): readonly string[] {
  const { identity, newer = 'step' } = policy;
  return identity === undefined ? [] : [...identity, newer, 'step'];
}

/**
 * Put the rows that came and that the recording has not beside those that it has, each once and by step. Of the newest step it may have a part only.
 *
 * @param keys - Columns that tell rows apart; all that hold no lists where there are none.
 */
export function joinTables(there: IStreamRows, here: IStreamRows, keys: readonly string[]): IStreamRows {
  const names = keys.length > 0 ? keys : Object.keys(here.columns).filter(name => !hasLists(here, name));
  const keyOf = ({ columns }: IStreamRows, row: number): string =>
    JSON.stringify(names.map(name => own(columns, name)?.[row]));
  const known = new Set(Array.from({ length: there.length }, (_, row) => keyOf(there, row)));
  const later = Array.from({ length: here.length }, (_, row) => row).filter(
    row => !known.has(keyOf(here, row))
  );
  const places = [
    ...Array.from({ length: there.length }, (_, row) => ({ rows: there, row })),
    ...later.map(row => ({ rows: here, row }))
  ];
  const stepOf = ({ rows, row }: (typeof places)[number]): number => Number(rows.columns['step']?.[row]);
  places.sort((a, b) => stepOf(a) - stepOf(b));
  const join = (name: string, column: RowColumn): RowColumn => {
    const cells = places.map(({ rows, row }) => own(rows.columns, name)?.[row]);
    return column instanceof Float64Array ? Float64Array.from(cells, Number) : (cells as string[]);
  };
  return {
    length: places.length,
    columns: Object.fromEntries(
      Object.entries(there.columns).map(([name, column]) => [name, join(name, column)])
    ),
    evictedRows: 0,
    sampledEvery: there.sampledEvery
  };
}

const hasLists = ({ columns }: IStreamRows, name: string): boolean => Array.isArray(own(columns, name)?.[0]);

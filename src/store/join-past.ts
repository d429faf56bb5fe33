import { own } from '../protocol/own';
import type { IStreamRows, RowColumn } from './row-store';
import { ascending } from './recording';
import type { ITensorResult, ITensorRow, ITensorShape } from './source';
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

/** Put the rows that came behind the newest recorded step behind those of the recording. */
export function joinTables(there: IStreamRows, here: IStreamRows): IStreamRows {
  const steps = there.columns['step'];
  const newest = Number(steps?.[there.length - 1] ?? -Infinity);
  const latest = here.columns['step'];
  let from = here.length;
  while (from > 0 && Number(latest?.[from - 1]) > newest) {
    from -= 1;
  }
  const join = (name: string, column: RowColumn): RowColumn => {
    const later = own(here.columns, name);
    if (column instanceof Float64Array) {
      return later instanceof Float64Array ? Float64Array.from([...column, ...later.subarray(from)]) : column;
    }
    return [...column, ...((later ?? []) as typeof column).slice(from)] as RowColumn;
  };
  return {
    length: there.length + here.length - from,
    columns: Object.fromEntries(
      Object.entries(there.columns).map(([name, column]) => [name, join(name, column)])
    ),
    evictedRows: 0,
    sampledEvery: there.sampledEvery
  };
}

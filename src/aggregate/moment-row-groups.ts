import { groupBy } from './group';
import type { IMomentQuery, MomentKey } from '../store/moment-source';
import { rowFilter } from './moment-filter';
import { codeNames, compareKeys, type Side } from './moment-keys';
import type { MomentTable } from './moment-table';

/** Which rows take part beside those that the query filters. */
export interface IPart {
  readonly side: Side | null;
  /** Whether a name at a step has its other side; all do when absent. */
  has?(nameId: number, step: number): boolean;
}

/** The rows of a range of steps, and the group of each. */
export interface IRowGroups {
  /** The first of the rows. */
  readonly first: number;
  /** Group of each row from `first` on; -1 leaves a row out. */
  readonly group: Int32Array;
  /** Keys of the groups, in order. Not every group needs to have rows. */
  readonly keys: readonly MomentKey[];
}

/**
 * The group of each row that a query asks of: the code of its name, and its rank and stage where they are asked for.
 *
 * @throws AggregateError when the query contradicts itself, or `mixed`.
 */
export function groupsOfRows(table: MomentTable, query: IMomentQuery, part: IPart): IRowGroups {
  const names = codeNames(table, query, part.side);
  const [from, to] = query.steps ?? [-Infinity, Infinity];
  const first = table.rowFrom(from);
  const end = Math.max(first, to === Infinity ? table.length : table.rowFrom(to + 1));
  const group = new Int32Array(end - first);
  const [ids, steps] = [table.nameId.subarray(first, end), table.stepCode.subarray(first, end)];
  for (let row = 0; row < group.length; row += 1) {
    // Every index is in range: a row names a place in `names`.
    group[row] = names.code[ids[row] as number] as number;
  }
  if (query.where?.rank !== undefined || query.where?.stage !== undefined) {
    const takes = rowFilter(table, query.where);
    for (let row = 0; row < group.length; row += 1) {
      group[row] = takes(first + row) ? (group[row] as number) : -1;
    }
  }
  if (part.has !== undefined) {
    for (let row = 0; row < group.length; row += 1) {
      if (
        (group[row] as number) >= 0 &&
        !part.has(ids[row] as number, table.steps[steps[row] as number] ?? 0)
      ) {
        group[row] = -1;
      }
    }
  }
  let keys = names.keys;
  for (const column of ['rank', 'stage'] as const) {
    const place = query.by.indexOf(column);
    if (place >= 0) {
      keys = split(group, table[column].subarray(first, end), keys, place);
    }
  }
  return { first, group, keys };
}

/** Split groups by a column of whole numbers; -1 in it is not known. The groups are in order of their keys again. */
function split(
  group: Int32Array,
  column: Int32Array,
  keys: readonly MomentKey[],
  place: number
): readonly MomentKey[] {
  const pairs = groupBy(group, column);
  const found: { pair: number; key: MomentKey }[] = [];
  pairs.first.forEach((old, pair) => {
    if (old >= 0) {
      const value = pairs.second[pair] ?? -1;
      const key = (keys[old] ?? []).map((part, at) => (at === place ? (value < 0 ? null : value) : part));
      found.push({ pair, key });
    }
  });
  found.sort((a, b) => compareKeys(a.key, b.key));
  const codes = new Int32Array(pairs.first.length).fill(-1);
  found.forEach(({ pair }, code) => {
    codes[pair] = code;
  });
  for (let row = 0; row < group.length; row += 1) {
    group[row] = codes[pairs.group[row] as number] as number;
  }
  return found.map(({ key }) => key);
}

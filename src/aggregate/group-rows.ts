import { powerOf, readMoment, readMomentError, type IMergedMoments } from '../protocol/moment-statistics';
import type { IMomentGroups, IMomentQuery, MomentKey } from '../store/moment-source';
import { groupBy } from './group';
import { readRanges } from './moment-filter';
import { codeNames, compareKeys, type Side } from './moment-keys';
import { mergeRows } from './moment-merge';
import type { MomentTable } from './moment-table';

/** Which rows take part beside those that the query filters. */
export interface IPart {
  readonly side: Side | null;
  /** Whether a name at a step has its other side; all do when absent. */
  has?(nameId: number, step: number): boolean;
}

interface IRowGroups {
  /** First row that may take part, and the group of each row from there on; -1 leaves a row out. */
  readonly first: number;
  readonly group: Int32Array;
  readonly keys: readonly MomentKey[];
}

const ALL: IPart = { side: null };
// A grid of this many cells for each row costs less than numbering the cells that are there.
const SPARSE = 2;

/**
 * Group the rows of a table by the columns of a query and by step, merge their moments and read the statistic.
 *
 * @param table - Rows of one stat.
 * @param query - What is asked; its `stat`, `ratio`, `points` and `series` are not looked at here.
 * @throws AggregateError when the query contradicts itself, or `mixed`.
 */
export function groupRows(table: MomentTable, query: IMomentQuery, part: IPart = ALL): IMomentGroups {
  const rows = groupsOfRows(table, query, part);
  const cells = cellsOf(table, rows);
  const merged = mergeRows(table, rows.first, cells.cell, cells.step.length, {
    power: powerOf(query.statistic),
    extremes: query.statistic === 'min' || query.statistic === 'max'
  });
  return readCells(table, rows, cells, merged, query);
}

/** The group of each row: the code of its name, and its rank and stage where they are asked for. */
function groupsOfRows(table: MomentTable, query: IMomentQuery, part: IPart): IRowGroups {
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
  for (const column of ['rank', 'stage'] as const) {
    const wanted = readRanges(query.where?.[column], column);
    if (wanted !== null) {
      const values = table[column].subarray(first, end);
      group.forEach((_, row) => {
        const value = values[row] as number;
        group[row] = wanted(value < 0 ? null : value) ? (group[row] as number) : -1;
      });
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

/** Split groups by a column of whole numbers; -1 in it is not known. */
function split(
  group: Int32Array,
  column: Int32Array,
  keys: readonly MomentKey[],
  place: number
): readonly MomentKey[] {
  const pairs = groupBy(group, column);
  const codes = new Int32Array(pairs.first.length).fill(-1);
  const result: MomentKey[] = [];
  pairs.first.forEach((old, pair) => {
    if (old >= 0) {
      const value = pairs.second[pair] ?? -1;
      codes[pair] = result.length;
      result.push((keys[old] ?? []).map((part, at) => (at === place ? (value < 0 ? null : value) : part)));
    }
  });
  for (let row = 0; row < group.length; row += 1) {
    group[row] = codes[pairs.group[row] as number] as number;
  }
  return result;
}

interface ICells {
  /** Cell of each row: a group at a step. */
  readonly cell: Int32Array;
  /** Group and code of the step of each cell; cells ascend by step. A cell that no row is in has group -1. */
  readonly group: Int32Array;
  readonly step: Int32Array;
}

/** Number the cells: by step first, as rows are ordered, so that a pass over rows stays in one stretch of memory. */
function cellsOf(table: MomentTable, { first, group, keys }: IRowGroups): ICells {
  const codes = table.stepCode.subarray(first, first + group.length);
  const start = codes[0] ?? 0;
  const steps = group.length === 0 ? 0 : (codes[group.length - 1] ?? 0) - start + 1;
  const width = keys.length;
  const cell = new Int32Array(group.length);
  if (width * steps > Math.max(1 << 16, group.length * SPARSE)) {
    const pairs = groupBy(codes, group);
    cell.set(pairs.group);
    group.forEach((of, row) => {
      cell[row] = of < 0 ? -1 : (cell[row] as number);
    });
    return { cell, group: Int32Array.from(pairs.second), step: Int32Array.from(pairs.first) };
  }
  const groups = new Int32Array(width * steps).fill(-1);
  const of = new Int32Array(width * steps);
  for (let row = 0; row < cell.length; row += 1) {
    const to = group[row] as number;
    const at = to < 0 ? -1 : ((codes[row] as number) - start) * width + to;
    cell[row] = at;
    if (at >= 0) {
      groups[at] = to;
      of[at] = codes[row] as number;
    }
  }
  return { cell, group: groups, step: of };
}

/** Read the statistic of every cell that has rows, and put the cells in order of group, then step. */
function readCells(
  table: MomentTable,
  { keys, first }: IRowGroups,
  cells: ICells,
  merged: IMergedMoments,
  query: IMomentQuery
): IMomentGroups {
  const sizes = new Uint32Array(keys.length);
  const seen = new Uint8Array(table.steps.length);
  for (let cell = 0; cell < cells.group.length; cell += 1) {
    const group = cells.group[cell] as number;
    if (group >= 0) {
      (sizes[group] as number) += 1;
      seen[cells.step[cell] as number] = 1;
    }
  }
  const order = keys
    .map((_, group) => group)
    .filter(group => (sizes[group] ?? 0) > 0)
    .sort((a, b) => compareKeys(keys[a] ?? [], keys[b] ?? []));
  const cursor = new Uint32Array(keys.length);
  const place = new Uint32Array(keys.length);
  let length = 0;
  order.forEach((group, at) => {
    cursor[group] = length;
    place[group] = at;
    length += sizes[group] ?? 0;
  });
  const answer = emptyGroups(
    order.map(group => keys[group] ?? []),
    length
  );
  const scaled = scaledCells(table, first, cells);
  for (let cell = 0; cell < cells.group.length; cell += 1) {
    const group = cells.group[cell] as number;
    if (group < 0) {
      continue;
    }
    const to = cursor[group] as number;
    cursor[group] = to + 1;
    const step = cells.step[cell] as number;
    answer.group[to] = place[group] as number;
    answer.step[to] = table.steps[step] as number;
    answer.samples[to] = table.samples[step] as number;
    answer.value[to] = readMoment(merged, cell, query.statistic);
    answer.count[to] = merged.count[cell] as number;
    answer.nonFinite[to] = merged.nonFinite[cell] as number;
    if (table.any.rounding) {
      answer.error[to] = readMomentError(merged, cell, query.statistic);
    }
    if (scaled !== null) {
      answer.scaled[to] = scaled[cell] as number;
    }
  }
  return {
    ...answer,
    groupsTotal: order.length,
    stepsTotal: seen.reduce((sum, each) => sum + each, 0)
  };
}

/** 1 for each cell that has a row whose loss scale is not known; null where no row is such. */
function scaledCells(table: MomentTable, first: number, { cell, group }: ICells): Uint8Array | null {
  if (!table.any.scaled) {
    return null;
  }
  const scaled = new Uint8Array(group.length);
  cell.forEach((to, row) => {
    if (to >= 0 && table.scaled[first + row] === 1) {
      scaled[to] = 1;
    }
  });
  return scaled;
}

/** Groups whose columns are to be filled. */
export function emptyGroups(keys: readonly MomentKey[], length: number): IMomentGroups {
  return {
    keys,
    group: new Uint32Array(length),
    step: new Float64Array(length),
    samples: new Float64Array(length),
    value: new Float64Array(length),
    count: new Float64Array(length),
    nonFinite: new Float64Array(length),
    error: new Float64Array(length),
    scaled: new Uint8Array(length),
    groupsTotal: keys.length,
    stepsTotal: 0
  };
}

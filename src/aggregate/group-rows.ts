import { byName } from '../protocol/records';
import { powerOf, readMomentErrors, readMoments } from '../protocol/moment-statistics';
import { type MomentKey, GROUP_FLOATS, type IMomentGroups } from '../store/row-moments';
import { groupBy } from './group';
import { mergeRows, rowsAsTheyAre } from './moment-merge';
import type { MomentTable } from './moment-table';
import { rowFilter, codeNames, compareKeys, type Side } from './moment-keys';
import type { MomentGroupsRequest } from '../protocol/requests.generated';

/** Which rows take part beside those that the query filters. */
export interface IPart {
  readonly side: Side | null;
  /** Whether a name at a step has its other side; all do when absent. */
  has?(nameId: number, step: number): boolean;
}

interface IRowGroups {
  readonly first: number;
  /** Group of each row from `first` on; -1 leaves a row out. */
  readonly group: Int32Array;
  /** Keys of the groups, in order. Not every group needs to have rows. */
  readonly keys: readonly MomentKey[];
}

/**
 * The group of each row that a query asks of: the code of its name, and its rank and stage where they are
 * asked for.
 *
 * @throws AggregateError when the query contradicts itself, or `mixed`.
 */
function groupsOfRows(table: MomentTable, query: MomentGroupsRequest, part: IPart): IRowGroups {
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
    const index = query.by.indexOf(column);
    if (index >= 0) {
      keys = split(group, table[column].subarray(first, end), keys, index);
    }
  }
  return { first, group, keys };
}

/**
 * Split groups by a column of whole numbers; -1 in it is not known. The groups are in order of their keys
 * again.
 */
function split(
  group: Int32Array,
  column: Int32Array,
  keys: readonly MomentKey[],
  index: number
): readonly MomentKey[] {
  const pairs = groupBy(group, column);
  const found: { pair: number; key: MomentKey }[] = [];
  pairs.first.forEach((old, pair) => {
    if (old >= 0) {
      const value = pairs.second[pair] ?? -1;
      const key = (keys[old] ?? []).map((part, at) => (at === index ? (value < 0 ? null : value) : part));
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

/** What is called for each cell that has rows: where its moments are, its group and the code of its step. */
type EachCell = (at: number, group: number, step: number) => void;

interface ICells {
  /** Cell of each row, -1 for none; null where every row is a cell of its own and nothing is to be merged. */
  readonly cell: Int32Array | null;
  readonly cells: number;
  readonly sizes: Uint32Array;
  /** Codes of the first step and of the one past the last. */
  readonly span: readonly [number, number];
  /** Go through the cells that have rows, those of a group by step. */
  each(visit: EachCell): void;
}

// A grid of this many cells for each row costs less than numbering the cells that are there.
const SPARSE = 2;
const SMALL = 1 << 16;
// So many groups are gone through side by side: their ends, to which is written, fit into the nearest cache.
const BLOCK = 64;

function cellsOf(table: MomentTable, rows: IRowGroups): ICells {
  const codes = table.stepCode.subarray(rows.first, rows.first + rows.group.length);
  const start = codes[0] ?? 0;
  const steps = codes.length === 0 ? 0 : (codes[codes.length - 1] ?? 0) - start + 1;
  return rows.keys.length * steps <= Math.max(SMALL, codes.length * SPARSE)
    ? onGrid(rows, codes, start, steps)
    : onList(rows, codes, [start, start + steps]);
}

/**
 * A row's cell is its index in the grid of steps and groups, by step first as rows are ordered, so that a
 * pass stays in one stretch of memory.
 */
function onGrid({ group, keys }: IRowGroups, codes: Int32Array, start: number, steps: number): ICells {
  const width = keys.length;
  const grid = new Int32Array(width * steps).fill(-1);
  const sizes = new Uint32Array(width);
  let single = true;
  for (let row = 0; row < group.length; row += 1) {
    // Every index is in range: the grid spans all groups and all steps of the rows.
    const to = group[row] as number;
    if (to >= 0) {
      const at = ((codes[row] as number) - start) * width + to;
      if ((grid[at] as number) < 0) {
        (sizes[to] as number) += 1;
      } else {
        single = false;
      }
      grid[at] = row;
    }
  }
  const cell = single ? null : new Int32Array(group.length);
  if (cell !== null) {
    for (let row = 0; row < group.length; row += 1) {
      const to = group[row] as number;
      const at = to < 0 ? -1 : ((codes[row] as number) - start) * width + to;
      cell[row] = at;
      if (at >= 0) {
        grid[at] = at;
      }
    }
  }
  const each = (visit: EachCell): void => {
    for (let from = 0; from < width; from += BLOCK) {
      const to = Math.min(width, from + BLOCK);
      for (let step = 0; step < steps; step += 1) {
        for (let of = from; of < to; of += 1) {
          const at = grid[step * width + of] as number;
          if (at >= 0) {
            visit(at, of, start + step);
          }
        }
      }
    }
  };
  return { cell, cells: single ? group.length : grid.length, sizes, span: [start, start + steps], each };
}

/** Where groups have few of the steps, the cells that are there are numbered. */
function onList({ group, keys }: IRowGroups, codes: Int32Array, span: ICells['span']): ICells {
  const pairs = groupBy(group, codes);
  const cell = Int32Array.from(pairs.group);
  const each = (visit: EachCell): void => {
    for (let at = 0; at < pairs.first.length; at += 1) {
      if ((pairs.first[at] as number) >= 0) {
        visit(at, pairs.first[at] as number, pairs.second[at] as number);
      }
    }
  };
  const sizes = new Uint32Array(keys.length);
  each((_, of) => {
    (sizes[of] as number) += 1;
  });
  return { cell, cells: pairs.first.length, sizes, span, each };
}

const ALL: IPart = { side: null };

/**
 * Group the rows of a table by the columns of a query and by step, merge their moments and read the
 * statistic.
 *
 * @param query - What is asked; its `stat`, `ratio`, `points` and `series` are not looked at here.
 * @throws AggregateError when the query contradicts itself, or `mixed`.
 */
export function groupRows(table: MomentTable, query: MomentGroupsRequest, part: IPart = ALL): IMomentGroups {
  const { statistic } = query;
  const rows = groupsOfRows(table, query, part);
  const cells = cellsOf(table, rows);
  const needs = { power: powerOf(statistic), extremes: statistic === 'min' || statistic === 'max' };
  const merged =
    cells.cell === null
      ? rowsAsTheyAre(table, rows.first, rows.group.length)
      : mergeRows(table, rows.first, cells.cell, cells.cells, needs);
  const values = readMoments(merged, statistic);
  const { any } = table;
  const [steps, samples] = [Float64Array.from(table.steps), Float64Array.from(table.samples)];
  const seen = new Uint8Array(steps.length);
  const errors = any.rounding ? readMomentErrors(merged, statistic) : null;
  const scaled = any.scaled ? scaledCells(table, rows, cells) : null;
  const { answer, ends } = layOut(rows.keys, cells.sizes);
  const [start, end] = cells.span;
  // As a rule every group has every step: then these columns are copied, not gathered.
  const everyStep = cells.sizes.every(size => size === 0 || size === end - start);
  if (everyStep) {
    for (let to = 0; to < answer.step.length; to += end - start) {
      answer.step.set(steps.subarray(start, end), to);
      answer.samples.set(samples.subarray(start, end), to);
    }
    seen.fill(1, answer.step.length > 0 ? start : end, end);
  }
  cells.each((at, group, step) => {
    // Every index is in range: cells are of the groups and steps that were laid out.
    const to = ends[group] as number;
    ends[group] = to + 1;
    if (!everyStep) {
      seen[step] = 1;
      answer.step[to] = steps[step] as number;
      answer.samples[to] = samples[step] as number;
    }
    answer.value[to] = values[at] as number;
    answer.count[to] = merged.count[at] as number;
    if (any.nonFinite) {
      answer.nonFinite[to] = merged.nonFinite[at] as number;
    }
    if (errors !== null) {
      answer.error[to] = errors[at] as number;
    }
    if (scaled !== null) {
      answer.scaled[to] = scaled[at] as number;
    }
  });
  return { ...answer, stepsTotal: seen.reduce((sum, each) => sum + each, 0) };
}

/** Columns for the groups that have rows, and where each group starts in them. */
function layOut(
  keys: readonly MomentKey[],
  sizes: Uint32Array
): { answer: IMomentGroups; ends: Uint32Array } {
  const there = keys.filter((_, group) => (sizes[group] ?? 0) > 0);
  const answer = emptyGroups(
    there,
    sizes.reduce((sum, size) => sum + size, 0)
  );
  const ends = new Uint32Array(keys.length);
  let [end, index] = [0, 0];
  sizes.forEach((size, group) => {
    ends[group] = end;
    answer.group.fill(index, end, end + size);
    end += size;
    index += size > 0 ? 1 : 0;
  });
  return { answer, ends };
}

/** What is doubtful of the rows of each cell, added up. */
function scaledCells(table: MomentTable, { first, group }: IRowGroups, cells: ICells): Uint8Array {
  const rows = table.scaled.subarray(first, first + group.length);
  if (cells.cell === null) {
    return rows;
  }
  const scaled = new Uint8Array(cells.cells);
  cells.cell.forEach((to, row) => {
    if (to >= 0) {
      (scaled[to] as number) |= rows[row] as number;
    }
  });
  return scaled;
}

export function emptyGroups(keys: readonly MomentKey[], length: number): IMomentGroups {
  return {
    keys,
    group: new Uint32Array(length),
    ...byName(GROUP_FLOATS, () => new Float64Array(length)),
    scaled: new Uint8Array(length),
    groupsTotal: keys.length,
    stepsTotal: 0
  };
}

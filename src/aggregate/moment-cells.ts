import { groupBy } from './group';
import type { IRowGroups } from './moment-row-groups';
import type { MomentTable } from './moment-table';

/** What is called for each cell that has rows: where its moments are, its group and the code of its step. */
export type EachCell = (at: number, group: number, step: number) => void;

/** Groups at steps. */
export interface ICells {
  /** Cell of each row, -1 for none; null where every row is a cell of its own and nothing is to be merged. */
  readonly cell: Int32Array | null;
  readonly cells: number;
  /** Number of steps at which each group has rows. */
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

/** Number the cells of rows that are grouped. */
export function cellsOf(table: MomentTable, rows: IRowGroups): ICells {
  const codes = table.stepCode.subarray(rows.first, rows.first + rows.group.length);
  const start = codes[0] ?? 0;
  const steps = codes.length === 0 ? 0 : (codes[codes.length - 1] ?? 0) - start + 1;
  return rows.keys.length * steps <= Math.max(SMALL, codes.length * SPARSE)
    ? onGrid(rows, codes, start, steps)
    : onList(rows, codes, [start, start + steps]);
}

/**
 * A row's cell is its place in the grid of steps and groups: by step first, as rows are ordered, so that a pass over rows stays in one stretch of
 * memory.
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

import { byName } from '../protocol/by-name';
import { powerOf, readMomentErrors, readMoments } from '../protocol/moment-statistics';
import { GROUP_FLOATS, type IMomentGroups, type IMomentQuery, type MomentKey } from '../store/moment-source';
import { cellsOf, type ICells } from './moment-cells';
import { mergeRows, rowsAsTheyAre } from './moment-merge';
import { groupsOfRows, type IPart, type IRowGroups } from './moment-row-groups';
import type { MomentTable } from './moment-table';

const ALL: IPart = { side: null };

/**
 * Group the rows of a table by the columns of a query and by step, merge their moments and read the statistic.
 *
 * @param table - Rows of one stat.
 * @param query - What is asked; its `stat`, `ratio`, `points` and `series` are not looked at here.
 * @throws AggregateError when the query contradicts itself, or `mixed`.
 */
export function groupRows(table: MomentTable, query: IMomentQuery, part: IPart = ALL): IMomentGroups {
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
  const whole = cells.sizes.every(size => size === 0 || size === end - start);
  if (whole) {
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
    if (!whole) {
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
  let [end, place] = [0, 0];
  sizes.forEach((size, group) => {
    ends[group] = end;
    answer.group.fill(place, end, end + size);
    end += size;
    place += size > 0 ? 1 : 0;
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

/** Groups whose columns are to be filled. */
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

import type { IMomentGroups, MomentStat } from '../store/row-moments';
import { AggregateError } from './moment-merge';
import { decimateGroups, pick, rowsAt, topGroups, startsOf, groupTables } from './moment-ratio';
import { MomentTable, type IRowPart } from './moment-table';
import type { MomentGroupsRequest } from '../protocol/requests.generated';

/**
 * Mean of each point and the points before it.
 *
 * Non-finite points enter no mean and stay as they are, so that a spike to infinity is not spread over its
 * neighbours. The sum is taken afresh for each block of points: a running sum would keep the rounding of
 * everything that ever passed through.
 *
 * @param points - How many points a mean is over, the point itself included; 0 or 1 leaves the values as they
 * are.
 */
export function trailingMean(values: Float64Array, points: number): Float64Array {
  if (!Number.isInteger(points) || points < 0) {
    throw new AggregateError(`A trailing mean is over a whole number of points, and ${points} came.`);
  }
  if (points < 2) {
    return values.slice();
  }
  const means = new Float64Array(values.length);
  // Sums from here to the end of the block, and from the block's start to here: any window is one of each.
  const toEnd = new Float64Array(values.length);
  const countToEnd = new Float64Array(values.length);
  for (let index = values.length - 1; index >= 0; index -= 1) {
    const value = values[index] ?? 0;
    const finite = Number.isFinite(value);
    const last = (index + 1) % points === 0 || index === values.length - 1;
    toEnd[index] = (last ? 0 : (toEnd[index + 1] ?? 0)) + (finite ? value : 0);
    countToEnd[index] = (last ? 0 : (countToEnd[index + 1] ?? 0)) + (finite ? 1 : 0);
  }
  let fromStart = 0;
  let countFromStart = 0;
  values.forEach((value, index) => {
    const finite = Number.isFinite(value);
    if (index % points === 0) {
      fromStart = 0;
      countFromStart = 0;
    }
    fromStart += finite ? value : 0;
    countFromStart += finite ? 1 : 0;
    const first = index - points + 1;
    const isAligned = first < 0 || first % points === 0;
    const sum = fromStart + (isAligned ? 0 : (toEnd[first] ?? 0));
    const count = countFromStart + (isAligned ? 0 : (countToEnd[first] ?? 0));
    means[index] = finite ? sum / count : value;
  });
  return means;
}

/** Whether an answer needs what lies before the steps that are asked for. */
function needsWhole({ show = 'raw', smoothing = 0, steps }: MomentGroupsRequest): boolean {
  return Boolean(steps) && (show !== 'raw' || smoothing > 1);
}

/**
 * Shape groups of the whole run as a question asks: first the greatest groups by their values as they are,
 * then the change from the first value, then the trailing mean over every step, then the steps that are asked
 * for, and last the steps that a line needs.
 *
 * @param groups - Groups of every step of the run where `needsWhole` says so.
 */
export function shapeGroups(groups: IMomentGroups, question: MomentGroupsRequest): IMomentGroups {
  const { show = 'raw', smoothing = 0, series, points } = question;
  const steps = needsWhole(question) ? question.steps : null;
  const top = series === undefined ? groups : topGroups(groups, series, steps ?? undefined);
  let shaped = smoothGroups(showGroups(top, show, show === 'raw' ? new Map() : firstValues(top)), smoothing);
  if (steps) {
    shaped = { ...pick(shaped, rowsAt(shaped, steps)), ...totalsAt(groups, steps) };
  }
  return points === undefined ? shaped : decimateGroups(shaped, points);
}

/** The first finite value of each group, by its key as JSON; a group that never had one is not in here. */
function firstValues(groups: IMomentGroups): Map<string, number> {
  const firsts = new Map<string, number>();
  const starts = startsOf(groups);
  groups.keys.forEach((key, group) => {
    const values = groups.value.subarray(starts[group] ?? 0, starts[group + 1] ?? 0);
    const first = values.find(value => Number.isFinite(value));
    if (first !== undefined) {
      firsts.set(JSON.stringify(key), first);
    }
  });
  return firsts;
}

/**
 * Show values against the first one of their group.
 *
 * @param firsts - First values of the whole run. A group of which it is 0 or unknown has no relative value
 * and no change in per cent: NaN.
 */
function showGroups(
  groups: IMomentGroups,
  show: NonNullable<MomentGroupsRequest['show']>,
  firsts: ReadonlyMap<string, number>
): IMomentGroups {
  if (show === 'raw') {
    return groups;
  }
  const of = groups.keys.map(key => firsts.get(JSON.stringify(key)) ?? Number.NaN);
  const value = groups.value.slice();
  const error = groups.error.slice();
  value.forEach((each, row) => {
    const first = of[groups.group[row] ?? 0] ?? Number.NaN;
    const scale = show === 'delta' ? 1 : first === 0 ? Number.NaN : 1 / first;
    const shown =
      show === 'relative' ? each * scale : (each - first) * (show === 'percent' ? 100 / Math.abs(first) : 1);
    value[row] = Number.isNaN(scale) ? Number.NaN : shown;
    error[row] =
      (error[row] ?? 0) === 0 ? 0 : (error[row] ?? 0) * Math.abs(scale) * (show === 'percent' ? 100 : 1);
  });
  return { ...groups, value, error };
}

/**
 * Replace each value by the mean of it and of those before it in its group; non-finite ones stay as they are.
 */
function smoothGroups(groups: IMomentGroups, points: number): IMomentGroups {
  if (points < 2) {
    return groups;
  }
  const value = groups.value.slice();
  const starts = startsOf(groups);
  groups.keys.forEach((_, group) => {
    const [from, to] = [starts[group] ?? 0, starts[group + 1] ?? 0];
    value.set(trailingMean(groups.value.subarray(from, to), points), from);
  });
  return { ...groups, value };
}

/** How many groups and steps there are in a range of steps. */
function totalsAt(
  groups: IMomentGroups,
  steps: readonly [number, number]
): Pick<IMomentGroups, 'groupsTotal' | 'stepsTotal'> {
  const rows = rowsAt(groups, steps);
  const there = new Set<number>();
  const seen = new Uint8Array(groups.keys.length);
  for (const row of rows) {
    there.add(groups.step[row] ?? 0);
    seen[groups.group[row] ?? 0] = 1;
  }
  return { groupsTotal: seen.reduce((sum, each) => sum + each, 0), stepsTotal: there.size };
}

export type TableQuestion =
  | {
      readonly kind: 'load';
      readonly table: string;
      readonly stat: MomentStat;
      readonly rows: IRowPart;
      /** The rows take the place of those from this step on; of all when null. */
      readonly from: number | null;
    }
  | { readonly kind: 'group'; readonly tables: readonly string[]; readonly question: MomentGroupsRequest }
  | { readonly kind: 'drop'; readonly table: string };

/** What it answers: the number of rows of the table, or groups. */
export type TableAnswer =
  | { readonly kind: 'rows'; readonly rows: number }
  | { readonly kind: 'groups'; readonly groups: IMomentGroups };

/**
 * Keeps tables of moments and answers questions on them: on the page where they are small, in the worker
 * where they are large.
 */
export class MomentTables {
  /**
   * Answer a question.
   *
   * @throws AggregateError when the question contradicts itself, or `lost` when there is no such table.
   */
  ask(question: TableQuestion): TableAnswer {
    switch (question.kind) {
      case 'load': {
        const { table: name, stat, rows, from } = question;
        const table = from === null ? new MomentTable(stat) : this.table(name);
        if (from !== null) {
          table.cut(from);
        }
        table.append(rows);
        this.tables.set(name, table);
        return { kind: 'rows', rows: table.length };
      }
      case 'group': {
        const tables = question.tables.map(name => this.table(name));
        const asked = question.question;
        const query = needsWhole(asked) ? { ...asked, steps: null } : asked;
        return { kind: 'groups', groups: shapeGroups(groupTables(tables, query), asked) };
      }
      case 'drop':
        this.tables.delete(question.table);
        return { kind: 'rows', rows: 0 };
    }
  }

  private table(name: string): MomentTable {
    const table = this.tables.get(name);
    if (table === undefined) {
      throw new AggregateError('The rows are not here any more. Ask again.', 'lost');
    }
    return table;
  }

  private readonly tables = new Map<string, MomentTable>();
}

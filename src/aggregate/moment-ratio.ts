import { type IMomentGroups, type MomentStat, GROUP_FLOATS } from '../store/row-moments';
import { AggregateError } from './moment-merge';
import { emptyGroups, groupRows, type IPart } from './group-rows';
import { moduleOf, type Side, rowFilter } from './moment-keys';
import type { MomentTable } from './moment-table';
import type { MomentGroupsRequest } from '../protocol/requests.generated';
import { byName } from '../protocol/records';
import { decimate } from './read-scalars';

// A table of this many bytes costs less than a set of the pairs that are there.
const TABLE_BYTES = 1 << 26;

/**
 * The stats that a query is answered from: one, or the one that is divided and the one that it is divided by.
 */
export function statsOf(query: MomentGroupsRequest): MomentStat[] {
  return query.ratio === 'grad_to_param' ? ['grad', 'param'] : [query.stat];
}

/**
 * Answer a query from tables: one statistic, or a ratio of two.
 *
 * @throws AggregateError when the query contradicts itself, or `mixed`.
 */
export function groupTables(tables: readonly MomentTable[], query: MomentGroupsRequest): IMomentGroups {
  const [table, other = table] = tables;
  if (table === undefined || other === undefined) {
    throw new AggregateError(`The rows of ${statsOf(query).join(' and ')} were expected, and none came.`);
  }
  switch (query.ratio ?? 'none') {
    case 'none':
      return groupRows(table, query);
    case 'grad_to_param': {
      const [own, others] = numbered(table.names, other.names);
      const above = groupRows(table, query, {
        side: null,
        has: whereBoth(own, presence(other, null, others, query))
      });
      const has = whereBoth(others, presence(table, null, own, query));
      return divide(above, groupRows(other, query, { side: null, has }));
    }
    case 'gain': {
      if (query.stat !== 'activation' && query.stat !== 'dgrad') {
        throw new AggregateError(
          `A gain is of what goes into modules and comes out of them, and ${query.stat} is neither. ` +
            'Choose activation or dgrad.'
        );
      }
      const forward: readonly [Side, Side] = ['output', 'input'];
      const [above, below] = query.stat === 'dgrad' ? (['input', 'output'] as const) : forward;
      const [modules] = numbered(table.names.map(moduleOf), []);
      const part = (side: Side, against: Side): IPart => ({
        side,
        has: whereBoth(modules, presence(table, against, modules, query))
      });
      return divide(groupRows(table, query, part(above, below)), groupRows(table, query, part(below, above)));
    }
  }
}

/** Numbers of names, the same for the same name in both lists. */
interface INumbers {
  /** One for each entry of the list. */
  readonly ids: Int32Array;
  /** Beyond the greatest number of either list. */
  readonly width: number;
}

function numbered(names: readonly string[], others: readonly string[]): [INumbers, INumbers] {
  const known = new Map<string, number>();
  const number = (name: string): number => {
    const id = known.get(name) ?? known.size;
    known.set(name, id);
    return id;
  };
  const [own, theirs] = [Int32Array.from(names, number), Int32Array.from(others, number)];
  return [
    { ids: own, width: known.size },
    { ids: theirs, width: known.size }
  ];
}

/** Whether there is something with a number at a step. */
type Presence = (id: number, step: number) => boolean;

function whereBoth({ ids }: INumbers, there: Presence): NonNullable<IPart['has']> {
  return (nameId, step) => there(ids[nameId] ?? -1, step);
}

/**
 * Say of what a table has rows at which step that a query's ranks and stages match; of one role of modules
 * where a side is given.
 */
function presence(
  table: MomentTable,
  side: Side | null,
  { ids, width }: INumbers,
  { where }: MomentGroupsRequest
): Presence {
  const matches = rowFilter(table, where);
  const codes = new Map(table.steps.map((step, code) => [step, code]));
  const small = width * table.steps.length <= TABLE_BYTES;
  const flags = new Uint8Array(small ? width * table.steps.length : 0);
  const set = new Set<number>();
  for (let row = 0; row < table.length; row += 1) {
    const name = table.nameId[row] as number;
    if ((side === null || table.parsed(name).role === side) && matches(row)) {
      const pair = (table.stepCode[row] as number) * width + (ids[name] as number);
      if (small) {
        flags[pair] = 1;
      } else {
        set.add(pair);
      }
    }
  }
  return (id, step) => {
    const code = codes.get(step);
    return code !== undefined && (small ? flags[code * width + id] === 1 : set.has(code * width + id));
  };
}

/** Divide groups by groups of the same key at the same step; what has no other side is left out. */
export function divide(above: IMomentGroups, below: IMomentGroups): IMomentGroups {
  const indices = new Map(below.keys.map((key, index) => [JSON.stringify(key), index]));
  const starts = startsOf(below);
  const pairs: [number, number][] = [];
  const keys: IMomentGroups['keys'][number][] = [];
  const group: number[] = [];
  const from = startsOf(above);
  above.keys.forEach((key, index) => {
    const other = indices.get(JSON.stringify(key));
    if (other === undefined) {
      return;
    }
    let at = starts[other] ?? 0;
    const end = starts[other + 1] ?? 0;
    const before = pairs.length;
    for (let to = from[index] ?? 0; to < (from[index + 1] ?? 0); to += 1) {
      while (at < end && (below.step[at] ?? 0) < (above.step[to] ?? 0)) {
        at += 1;
      }
      if (at < end && below.step[at] === above.step[to]) {
        pairs.push([to, at]);
        group.push(keys.length);
      }
    }
    if (pairs.length > before) {
      keys.push(key);
    }
  });
  const answer = emptyGroups(keys, pairs.length);
  answer.group.set(group);
  pairs.forEach(([a, b], to) => {
    const at = (column: Float64Array | Uint8Array, row: number): number => column[row] ?? Number.NaN;
    const value = at(above.value, a) / at(below.value, b);
    answer.step[to] = at(above.step, a);
    answer.samples[to] = at(above.samples, a);
    answer.value[to] = value;
    answer.count[to] = at(above.count, a);
    answer.nonFinite[to] = at(above.nonFinite, a) + at(below.nonFinite, b);
    answer.error[to] = Math.abs(value) * (share(above, a) + share(below, b));
    answer.scaled[to] = at(above.scaled, a) | at(below.scaled, b);
  });
  return { ...answer, stepsTotal: new Set(answer.step).size };
}

/** Where each group starts among the rows; one entry more than there are groups. */
export function startsOf(groups: IMomentGroups): Uint32Array {
  const starts = new Uint32Array(groups.keys.length + 1);
  for (let row = 0; row < groups.group.length; row += 1) {
    // Every index is in range: rows name groups that have keys.
    (starts[(groups.group[row] as number) + 1] as number) += 1;
  }
  for (let at = 1; at < starts.length; at += 1) {
    starts[at] = (starts[at] ?? 0) + (starts[at - 1] ?? 0);
  }
  return starts;
}

/** How far a value may be off, as a share of itself. */
function share({ value, error }: IMomentGroups, row: number): number {
  const off = error[row] ?? 0;
  return off === 0 ? 0 : off / Math.abs(value[row] ?? Number.NaN);
}

/**
 * Keep the groups of the greatest magnitudes.
 *
 * Groups that have values which are not finite or not known come first of all, so that no diverged tensor is
 * left out. The order of groups stays.
 *
 * @param steps - Inclusive range of the steps whose values are looked at; all of them when absent.
 */
export function topGroups(
  groups: IMomentGroups,
  series: number,
  [first, last]: readonly [number, number] = [-Infinity, Infinity]
): IMomentGroups {
  if (groups.keys.length <= series) {
    return groups;
  }
  const size = new Float64Array(groups.keys.length).fill(-1);
  for (let row = 0; row < groups.group.length; row += 1) {
    // Every index is in range: rows name groups that have keys.
    const step = groups.step[row] as number;
    if (step >= first && step <= last) {
      const group = groups.group[row] as number;
      size[group] = Math.max(size[group] as number, magnitude(groups, row));
    }
  }
  const stay = new Uint8Array(groups.keys.length);
  Array.from(size, (_, group) => group)
    .sort((a, b) => (size[b] ?? 0) - (size[a] ?? 0) || a - b)
    .slice(0, series)
    .forEach(group => {
      stay[group] = 1;
    });
  return pick(
    groups,
    rowsWhere(groups, row => stay[groups.group[row] as number] === 1)
  );
}

/** How much a point stands out: no data does not, what is not finite or not known does most. */
function magnitude(groups: IMomentGroups, row: number): number {
  const value = groups.value[row] as number;
  if (groups.nonFinite[row] !== 0) {
    return Infinity;
  }
  return Number.isNaN(value) ? -1 : Math.abs(value);
}

/**
 * Choose of each group steps so that a line through them looks as the line through all of them: of each
 * stretch the first, last, least and greatest, and every step with values that are not finite or not known.
 *
 * @param points - About how many steps of a group may stay; the non-finite ones come on top.
 */
export function decimateGroups(groups: IMomentGroups, points: number): IMomentGroups {
  const starts = startsOf(groups);
  const stay = new Uint8Array(groups.step.length).fill(1);
  for (let group = 0; group < groups.keys.length; group += 1) {
    const [from, to] = [starts[group] ?? 0, starts[group + 1] ?? 0];
    if (to - from > points) {
      const [steps, values] = [groups.step.subarray(from, to), groups.value.subarray(from, to)];
      const { kept } = decimate(steps, values, points, true);
      stay.fill(0, from, to);
      kept.forEach(at => {
        stay[from + at] = 1;
      });
      for (let row = from; row < to; row += 1) {
        const value = groups.value[row] as number;
        if (groups.nonFinite[row] !== 0 || value === Infinity || value === -Infinity) {
          stay[row] = 1;
        }
      }
    }
  }
  const kept = rowsWhere(groups, row => stay[row] === 1);
  return kept.length === groups.step.length ? groups : pick(groups, kept);
}

/** Ascending indices of the rows that a test lets through. */
export function rowsWhere(groups: IMomentGroups, inside: (row: number) => boolean): Uint32Array {
  const rows = new Uint32Array(groups.group.length);
  let kept = 0;
  for (let row = 0; row < rows.length; row += 1) {
    if (inside(row)) {
      rows[kept] = row;
      kept += 1;
    }
  }
  return rows.slice(0, kept);
}

/** Indices of the rows of an inclusive range of steps. */
export function rowsAt(groups: IMomentGroups, [first, last]: readonly [number, number]): Uint32Array {
  const { step } = groups;
  return rowsWhere(groups, row => (step[row] as number) >= first && (step[row] as number) <= last);
}

/** The rows at these ascending indices, and the groups that they are in; the totals stay those of before. */
export function pick(groups: IMomentGroups, rows: Uint32Array): IMomentGroups {
  const codes = new Int32Array(groups.keys.length).fill(-1);
  const keys: IMomentGroups['keys'][number][] = [];
  const group = new Uint32Array(rows.length);
  for (let at = 0; at < rows.length; at += 1) {
    const old = groups.group[rows[at] as number] as number;
    if ((codes[old] as number) < 0) {
      codes[old] = keys.length;
      keys.push(groups.keys[old] ?? []);
    }
    group[at] = codes[old] as number;
  }
  return {
    ...groups,
    keys,
    group,
    ...byName(GROUP_FLOATS, name => gather(groups[name], rows, new Float64Array(rows.length))),
    scaled: gather(groups.scaled, rows, new Uint8Array(rows.length))
  };
}

function gather<T extends Float64Array | Uint8Array>(column: T, rows: Uint32Array, to: T): T {
  for (let at = 0; at < rows.length; at += 1) {
    to[at] = column[rows[at] as number] as number;
  }
  return to;
}

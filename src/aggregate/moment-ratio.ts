import type { IMomentGroups, MomentStat } from '../store/moment-source';
import { AggregateError } from './moment-merge';
import { emptyGroups, groupRows, type IPart } from './group-rows';
import { moduleOf, type Side, rowFilter } from './moment-keys';
import type { MomentTable } from './moment-table';
import type { MomentGroupsRequest } from '../protocol/requests.generated';

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

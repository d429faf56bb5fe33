import { compareNatural } from '../protocol/natural-order';
import type { IMomentFilter, IMomentGroups } from '../store/moment-source';
import { nameFilter, rowFilter } from './moment-filter';
import type { MomentTable } from './moment-table';

/** Where values first stopped being finite. */
export interface IFirstBad {
  readonly step: number;
  /** Tensors with NaN or infinite values at that step, in natural order. */
  readonly names: readonly string[];
}

/** Find the first step at which a tensor that a filter matches has values that are not finite or not known. */
export function findBad(table: MomentTable, where?: IMomentFilter): IFirstBad | null {
  const matches = nameFilter(where);
  const takes = rowFilter(table, where);
  const { columns, stepCode, nameId } = table;
  const found = new Set<string>();
  let code = -1;
  for (let row = 0; row < table.length && (code < 0 || stepCode[row] === code); row += 1) {
    const bad = columns.nonFinite[row] !== 0 || isOff(columns.count[row] ?? 0, columns.mean[row] ?? 0);
    const id = nameId[row] ?? 0;
    if (bad && takes(row) && matches(table.names[id] ?? '', table.parsed(id))) {
      code = stepCode[row] ?? 0;
      found.add(table.names[id] ?? '');
    }
  }
  return code < 0 ? null : { step: table.steps[code] ?? 0, names: [...found].sort(compareNatural) };
}

/** The same, out of groups by name. */
export function badOf(groups: IMomentGroups): IFirstBad | null {
  let step = Infinity;
  let names: string[] = [];
  groups.nonFinite.forEach((bad, row) => {
    const at = groups.step[row] ?? Infinity;
    if (bad !== 0 && at <= step) {
      names = at < step ? [] : names;
      step = at;
      names.push(String(groups.keys[groups.group[row] ?? 0]?.[0] ?? ''));
    }
  });
  return names.length === 0 ? null : { step, names: names.sort(compareNatural) };
}

function isOff(count: number, mean: number): boolean {
  return count > 0 && !Number.isFinite(mean);
}

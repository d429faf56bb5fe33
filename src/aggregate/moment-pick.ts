import { byName } from '../protocol/records';
import { GROUP_FLOATS, type IMomentGroups } from '../store/moment-source';
import { decimate } from './read-scalars';
import { startsOf } from './moment-ratio';

/** What the x axis of groups is. */
export type MomentAxis = 'step' | 'samples';

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
 * @param axis - Stretches are equal spans of this.
 */
export function decimateGroups(
  groups: IMomentGroups,
  points: number,
  axis: MomentAxis = 'step'
): IMomentGroups {
  const starts = startsOf(groups);
  const stay = new Uint8Array(groups.step.length).fill(1);
  for (let group = 0; group < groups.keys.length; group += 1) {
    const [from, to] = [starts[group] ?? 0, starts[group + 1] ?? 0];
    if (to - from > points) {
      const { kept } = decimate(groups[axis].subarray(from, to), groups.value.subarray(from, to), points);
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

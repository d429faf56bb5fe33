import type { IMomentGroups } from '../store/moment-source';
import { decimate } from './decimate';
import { startsOf } from './moment-ratio';

/** What the x axis of groups is. */
export type MomentAxis = 'step' | 'samples';

/**
 * Keep the groups of the greatest magnitudes.
 *
 * Groups that have values which are not finite or not known come first of all, so that no diverged tensor is left out. The order of groups stays.
 *
 * @param series - How many may stay.
 */
export function topGroups(groups: IMomentGroups, series: number): IMomentGroups {
  if (groups.keys.length <= series) {
    return groups;
  }
  const size = new Float64Array(groups.keys.length).fill(-1);
  groups.group.forEach((group, row) => {
    const value = groups.value[row] ?? Number.NaN;
    const whole = groups.nonFinite[row] === 0;
    const magnitude =
      whole && Number.isFinite(value) ? Math.abs(value) : whole && Number.isNaN(value) ? -1 : Infinity;
    size[group] = Math.max(size[group] ?? -1, magnitude);
  });
  const stay = new Uint8Array(groups.keys.length);
  Array.from(size, (_, group) => group)
    .sort((a, b) => (size[b] ?? 0) - (size[a] ?? 0) || a - b)
    .slice(0, series)
    .forEach(group => {
      stay[group] = 1;
    });
  return pick(
    groups,
    groups.group.map((_, row) => row).filter(row => stay[groups.group[row] ?? 0] === 1)
  );
}

/**
 * Choose of each group steps so that a line through them looks as the line through all of them: of each stretch the first, last, least and greatest,
 * and every step with values that are not finite or not known.
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
  const kept: number[] = [];
  groups.keys.forEach((_, group) => {
    const [from, to] = [starts[group] ?? 0, starts[group + 1] ?? 0];
    const value = groups.value.subarray(from, to);
    const stay = new Set(decimate(groups[axis].subarray(from, to), value, points).kept);
    if (stay.size < value.length) {
      value.forEach((each, at) => {
        if (groups.nonFinite[from + at] !== 0 || each === Infinity || each === -Infinity) {
          stay.add(at);
        }
      });
    }
    kept.push(...[...stay].sort((a, b) => a - b).map(at => from + at));
  });
  return kept.length === groups.step.length ? groups : pick(groups, Uint32Array.from(kept));
}

/** The rows at these ascending places, and the groups that they are in; the totals stay those of before. */
export function pick(groups: IMomentGroups, rows: Uint32Array): IMomentGroups {
  const codes = new Int32Array(groups.keys.length).fill(-1);
  const keys: IMomentGroups['keys'][number][] = [];
  const group = rows.map(row => {
    const old = groups.group[row] ?? 0;
    if ((codes[old] ?? -1) < 0) {
      codes[old] = keys.length;
      keys.push(groups.keys[old] ?? []);
    }
    return codes[old] ?? 0;
  });
  const of = (column: Float64Array): Float64Array =>
    Float64Array.from(rows, row => column[row] ?? Number.NaN);
  return {
    ...groups,
    keys,
    group,
    step: of(groups.step),
    samples: of(groups.samples),
    value: of(groups.value),
    count: of(groups.count),
    nonFinite: of(groups.nonFinite),
    error: of(groups.error),
    scaled: Uint8Array.from(rows, row => groups.scaled[row] ?? 0)
  };
}

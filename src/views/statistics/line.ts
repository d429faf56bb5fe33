import { gapStarts } from '../../aggregate';
import { byName } from '../../protocol/records';
import type { IMomentGroups, MomentColumn, MomentKey } from '../../store/row-moments';
import type { RunClock } from '../kits/lines/step-axis';
import type { ILine } from '../kits/lines/line';
import type { MomentOptions } from './words';

/** Columns of groups that are columns of a line. */
export const LINE_COLUMNS = ['step', 'x', 'value', 'nonFinite', 'error', 'count'] as const;

/** Where each group's rows begin and end. */
export function spans(groups: IMomentGroups): [number, number][] {
  const found = groups.keys.map((): [number, number] => [0, 0]);
  let from = 0;
  for (let at = 1; at <= groups.group.length; at += 1) {
    if (at === groups.group.length || groups.group[at] !== groups.group[from]) {
      found[groups.group[from] ?? 0] = [from, at];
      from = at;
    }
  }
  return found;
}

/**
 * Name a group where lines are told apart, in saved options as well: by its one column, or by a list of
 * several.
 */
export function groupId(key: MomentKey): string {
  return key.length === 1 && key[0] !== null ? String(key[0]) : JSON.stringify(key);
}

/**
 * Steps at which lines begin anew, of all steps that were logged; none where only some of these are known.
 */
export function startsOf(total: Pick<IMomentGroups, 'step' | 'stepsTotal'>): readonly number[] {
  return total.stepsTotal > total.step.length ? [] : gapStarts(total.step).map(at => total.step[at] ?? NaN);
}

/**
 * Values as lines draw them: none where fewer values of a group are finite than not. What a few finite ones
 * are left with, often 0, is not what the tensor did.
 */
export function drawnValues(
  { value, count, nonFinite }: Pick<IMomentGroups, 'count' | 'nonFinite' | 'value'>,
  { statistic }: Pick<MomentOptions, 'statistic'>
): Float64Array {
  return statistic === 'nonfinite'
    ? value
    : value.map((each, at) => ((nonFinite[at] ?? 0) > (count[at] ?? 0) ? NaN : each));
}

export interface ILineRequest {
  readonly options: MomentOptions;
  readonly by: readonly MomentColumn[];
  readonly run: number;
  readonly name: (key: MomentKey) => string;
  readonly label: (key: MomentKey) => string;
  /** Entry of the legend, where that is not the group's own. */
  readonly entry?: string;
  readonly starts?: readonly number[];
  /** Where steps lie on the axis by which runs are aligned. */
  readonly clock?: RunClock;
  /** Whether these are the numbers before a trailing mean. */
  readonly isFaint?: boolean;
}

/** Turn groups into lines, in the order of the groups. A group without data at a step has a gap there. */
export function linesOf(groups: IMomentGroups, wish: ILineRequest): ILine[] {
  const { options, by, run, name, label, entry, starts = [], clock, isFaint } = wish;
  const index = by.indexOf('layer');
  const xs =
    options.align !== 'step' && clock
      ? groups.step.map(clock)
      : options.x === 'samples'
        ? groups.samples
        : groups.step;
  const all = spans(groups);
  const drawn = { ...groups, x: xs, value: drawnValues(groups, options) };
  const longest = all.reduce((most, [from, to]) => Math.max(most, to - from), 0);
  return all.flatMap(([from, to], at): ILine[] => {
    const key = groups.keys[at] ?? [];
    const layer = index < 0 ? null : key[index];
    return to === from
      ? []
      : [
          {
            key: groupId(key),
            ...byName(LINE_COLUMNS, column => drawn[column].subarray(from, to)),
            name: name(key),
            label: label(key),
            ...(entry === undefined ? {} : { entry }),
            run,
            layer: typeof layer === 'number' ? layer : null,
            starts,
            isThin: groups.stepsTotal > longest,
            digits: 9,
            ...(isFaint ? { isFaint: true as const } : {})
          }
        ];
  });
}

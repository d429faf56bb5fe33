import { formatInteger, formatNumber, SigmaScale, type ColorScale } from '../../charts';
import {
  CLIPPED,
  SCALED,
  type IMomentGroups,
  type IMomentIndex,
  type MomentColumn
} from '../../store/row-moments';
import type { IReadBy } from '../../client/run-reader';
import type { Translate } from '../shared/translate';
import { nearestIndex } from '../shared/scale';
import { spans } from './line';
import { tensorOf } from './name-facts';
import { columnWords, keyWords, statisticWords, type MomentOptions } from './words';

/** Parts of a value that rounding may take before the caption says so. */
const WORTH_A_WORD = 1e-3;
/** Most warnings of a run that a caption repeats. */
const MOST_WARNINGS = 4;

/** Steps that the longest group is drawn with: groups that keep their extremes keep different steps. */
export function drawnSteps(groups: IMomentGroups): number {
  return spans(groups).reduce((most, [from, to]) => Math.max(most, to - from), 0);
}

/** Say of which ranks, and of which tensors by their names, a map is. */
export function whereWords({ where }: Pick<MomentOptions, 'where'>, t: Translate): string[] {
  const { rank = 'all', name } = where ?? {};
  const tensor = name === undefined ? null : tensorOf(name);
  return [
    ...(rank === 'all'
      ? []
      : [/^\d+$/.test(rank) ? t('Of rank %1 only.', rank) : t('Of ranks %1 only.', rank)]),
    ...(name === undefined
      ? []
      : [tensor === null ? t('Of tensors whose names have ‘%1’ only.', name) : t('Of %1 only.', tensor)])
  ];
}

/** Say what bands of colours are. */
export function bandWords(scale: ColorScale, t: Translate): string[] {
  if (!(scale instanceof SigmaScale)) {
    return [];
  }
  return scale.transform === 'log'
    ? [
        t(
          'A colour says how many standard deviations (σ) the logarithm of a cell lies from their mean, %1.',
          formatNumber(scale.mean, 3)
        )
      ]
    : [
        t(
          'A colour says how many standard deviations (σ) a cell lies from the mean of all, %1.',
          formatNumber(scale.mean, 3)
        )
      ];
}

/** Say how much has no column. */
export function leftWords(left: number, column: MomentColumn | 'step', t: Translate): string[] {
  return left === 0 || column === 'step'
    ? []
    : [t('Groups without a %1 are left out: %2.', columnWords(column, t), formatInteger(left))];
}

/** Say what was left out of what is drawn: steps and series. */
export function omittedWords(groups: IMomentGroups, unit: string, t: Translate): string[] {
  const lines: string[] = [];
  const drawn = drawnSteps(groups);
  if (groups.stepsTotal > drawn) {
    lines.push(
      t(
        '%1 of %2 steps are drawn; every minimum and maximum is kept.',
        formatInteger(drawn),
        formatInteger(groups.stepsTotal)
      )
    );
  }
  if (groups.groupsTotal > groups.keys.length) {
    lines.push(
      t(
        '%1 of %2 %3 are drawn: those with the largest values.',
        formatInteger(groups.keys.length),
        formatInteger(groups.groupsTotal),
        unit
      )
    );
  }
  return lines;
}

/** Say how sure the numbers are: an unknown loss scale, and what raw sums in single precision lost. */
export function trustWords(groups: IMomentGroups, options: MomentOptions, t: Translate): string[] {
  const lines: string[] = [];
  const doubts = groups.scaled.reduce((all, each) => all | each, 0);
  if (doubts & CLIPPED) {
    lines.push(
      t('Some of these gradients were measured as the optimizer took them: clipping may be in them.')
    );
  }
  if (doubts & SCALED) {
    lines.push(
      t(
        'These gradients may hold a loss scale that nobody recorded: compare them with one another, not with others.'
      )
    );
  }
  const part = (at: number): number => (groups.error[at] ?? 0) / Math.abs(groups.value[at] ?? NaN);
  let worst = -1;
  groups.error.forEach((_, at) => {
    worst = part(at) > (worst < 0 ? WORTH_A_WORD : part(worst)) ? at : worst;
  });
  if (worst >= 0) {
    const key = groups.keys[groups.group[worst] ?? 0] ?? [];
    lines.push(
      t(
        'Made of raw sums in single precision: at worst the %1 is known to ± %2 (of %3, at step %4, where it is %5).',
        statisticWords(options.statistic, t),
        formatNumber(groups.error[worst] ?? NaN, 2),
        formatNumber(groups.value[worst] ?? NaN, 3),
        formatInteger(groups.step[worst] ?? 0),
        keyWords(key, options.by ?? [], t)
      )
    );
  }
  return lines;
}

/** Say which machines read. */
export const readByWords = ({ address, workers }: IReadBy, t: Translate): string =>
  workers === 1
    ? t('Read by 1 worker at %1.', address)
    : t('Read by %1 workers at %2.', formatInteger(workers), address);

/** Say what is unusual about a run's files, and what the options do that is not literal. */
export function optionWords(options: MomentOptions, index: IMomentIndex | null, t: Translate): string[] {
  const warnings = index?.warnings ?? [];
  const lines: string[] = [];
  if (options.mixed) {
    lines.push(t('Inputs and outputs of modules are mixed: the same values may count twice.'));
  }
  if (options.smoothing > 1) {
    lines.push(
      t('Trailing mean of %1 points; the numbers themselves are faint.', formatInteger(options.smoothing))
    );
  }
  if (options.show === 'relative' || options.show === 'percent') {
    lines.push(t('A series whose first value is 0 has no such number.'));
  }
  lines.push(...warnings.slice(0, MOST_WARNINGS));
  if (warnings.length > MOST_WARNINGS) {
    lines.push(t('%1 more notes on this run.', formatInteger(warnings.length - MOST_WARNINGS)));
  }
  return lines;
}

/**
 * Say at how many steps values were not finite, and that they are marked.
 *
 * @param marked Whether the picture marks them along its top.
 * @param run Name of the run, where it is another than the view's own.
 */
export function nonFiniteWords(
  groups: IMomentGroups,
  t: Translate,
  marked = true,
  run: string | null = null
): string[] {
  const steps = badSteps(groups);
  const many = formatInteger(steps.size);
  const what = run === null ? t('Values that are not finite') : t('Values of %1 that are not finite', run);
  const where = steps.size === 1 ? t('%1 at %2 step', what, many) : t('%1 at %2 steps', what, many);
  return steps.size === 0
    ? []
    : [
        marked
          ? t('%1, marked along the top; statistics are over the finite ones.', where)
          : t('%1; statistics are over the finite ones.', where)
      ];
}

/** Steps with values that are not finite, each with how many; those that only overflowed count once. */
export function badSteps(groups: IMomentGroups): Map<number, number> {
  const counts = new Map<number, number>();
  groups.nonFinite.forEach((count, at) => {
    const infinite = groups.value[at] === Infinity || groups.value[at] === -Infinity;
    if (count !== 0 || infinite) {
      const step = groups.step[at] ?? 0;
      counts.set(step, (counts.get(step) ?? 0) + (count > 0 ? count : 1));
    }
  });
  return counts;
}

/** A stretch of the x axis in which every step has values that are not finite. */
export interface IStretch {
  readonly x: number;
  readonly x2: number;
  readonly count: number;
}

/**
 * Return the stretches with values that are not finite, over all groups.
 *
 * @param steps - Every step that was logged, ascending: neighbours in it are one stretch.
 * @param xOf - Where a step lies on the x axis.
 */
export function badStretches(
  groups: IMomentGroups,
  steps: ArrayLike<number>,
  xOf: (step: number) => number
): IStretch[] {
  const found: (IStretch & { index: number })[] = [];
  for (const [step, count] of [...badSteps(groups)].sort(([a], [b]) => a - b)) {
    const index = nearestIndex(steps, step);
    const last = found[found.length - 1];
    const x = xOf(step);
    if (last && index <= last.index + 1) {
      found[found.length - 1] = { x: last.x, x2: x, count: last.count + count, index };
    } else {
      found.push({ x, x2: x, count, index });
    }
  }
  return found.map(({ x, x2, count }) => ({ x, x2, count }));
}

import { formatInteger, formatNumber } from '../../charts';
import type { ConnectionState } from '../../store/source';
import { type Control, selectControl } from './control';
import { chip } from './table';
import { robustRange } from './robust-range';
import { nearestIndex } from './scale';
import type { Translate } from './translate';

/** The step slider with following: null as step follows the newest. */
export function stepsControl(
  steps: readonly number[],
  step: number | null,
  connection: ConnectionState,
  change: (step: number | null) => void,
  t: Translate
): Control {
  const index = step === null ? Math.max(0, steps.length - 1) : Math.max(0, nearestIndex(steps, step));
  const live = connection.kind !== 'recorded' && connection.kind !== 'closed';
  const following = step === null && live;
  return {
    kind: 'steps',
    id: 'steps',
    label: t('Step'),
    followLabel: following ? t('Stop following and stay at this step') : t('Follow the newest step'),
    count: steps.length,
    index,
    text: steps.length > 0 ? t('step %1', formatInteger(steps[index] ?? 0)) : t('no step yet'),
    following,
    canFollow: live,
    change: chosen => change(chosen === null ? null : (steps[chosen] ?? null))
  };
}

/** A line in which a step is written to go there. */
export function goControl(go: (step: number) => void, t: Translate): Control {
  return {
    kind: 'text',
    id: 'go',
    label: t('Go to step'),
    value: '',
    suggestions: [],
    valid: text => /^\d+$/.test(text),
    change: text => go(Number(text))
  };
}

export function transformControl(
  label: string,
  value: 'linear' | 'log',
  choose: (transform: 'linear' | 'log') => void,
  t: Translate
): Control {
  const words = { linear: t('linear'), log: t('log') };
  return selectControl('transform', label, value, words, choose);
}

/**
 * Lock the colours of a picture, also to what all but a few values span, or let them follow its values;
 * nothing before anything was drawn.
 * @param domain What the colours span now; null before that.
 * @param values What is drawn; read when it is asked for.
 */
export function colorRangeControl(
  range: readonly number[] | null,
  domain: readonly [number, number] | null,
  choose: (options: { color_range: [number, number] | null }) => void,
  values: () => readonly ArrayLike<number>[],
  t: Translate
): Control[] {
  if (domain === null) {
    return [];
  }
  const ends = ([low = NaN, high = NaN]: readonly number[]): string =>
    t('%1 to %2', formatNumber(low, 3), formatNumber(high, 3));
  const words = {
    data: t('of the data'),
    locked: range ? t('locked, %1', ends(range)) : t('lock %1', ends(domain)),
    robust: t('without outliers')
  };
  return [
    selectControl<keyof typeof words>('color_range', t('Range'), range ? 'locked' : 'data', words, value => {
      const [low, high] =
        (value === 'robust' ? robustRange(values()) : value === 'locked' ? domain : null) ?? [];
      choose({ color_range: low === undefined || high === undefined ? null : [low, high] });
    })
  ];
}

/** Say that colours are locked, and how many cells lie outside; empty where they are not. */
export function lockedWords(
  range: readonly number[] | null,
  parts: readonly ArrayLike<number>[],
  t: Translate
): string[] {
  if (range === null) {
    return [];
  }
  const [low, high] = [Math.min(...range), Math.max(...range)];
  const outside = parts.reduce((sum, part) => {
    let count = 0;
    for (let at = 0; at < part.length; at += 1) {
      const value = part[at] ?? NaN;
      count += Number.isFinite(value) && (value < low || value > high) ? 1 : 0;
    }
    return sum + count;
  }, 0);
  return [
    t(
      'Colours are locked from %1 to %2; cells outside, drawn as the nearer end: %3.',
      formatNumber(low, 3),
      formatNumber(high, 3),
      formatInteger(outside)
    )
  ];
}

/** Choose whether the axis of values ends where all but a few do. */
export function outliersControl(
  ignored: boolean,
  choose: (options: { ignore_outliers: boolean }) => void,
  t: Translate
): Control {
  const words = { all: t('all values'), most: t('without outliers') };
  return selectControl('outliers', t('Range'), ignored ? 'most' : 'all', words, value =>
    choose({ ignore_outliers: value === 'most' })
  );
}

/** Say that lines are smoothed, where the choice itself may be folded away; nothing where they are not. */
export function smoothedChip(value: number, choose: (smoothing: number) => void, t: Translate): Control[] {
  return value < 2
    ? []
    : [
        chip(
          'smoothed',
          t('Smoothed: %1 points', formatInteger(value)),
          t('What is drawn is a trailing mean. Draw the numbers as they are'),
          () => choose(0)
        )
      ];
}

/** Say which position of a text is shown where one was chosen; nothing where the newest is followed. */
export function positionChip(
  position: number | null,
  choose: (options: { position: null }) => void,
  t: Translate
): Control[] {
  return position === null
    ? []
    : [
        chip('position', t('position %1', formatInteger(position)), t('Follow the newest position'), () =>
          choose({ position: null })
        )
      ];
}

/**
 * Choose over how many points a trailing mean goes; a number that is not offered is offered as well while it
 * is chosen.
 */
export function smoothingControl(
  offered: readonly number[],
  value: number,
  choose: (smoothing: number) => void,
  t: Translate
): Control {
  const choices = [...new Set([...offered, value])]
    .sort((a, b) => a - b)
    .map(each => ({ value: each, text: each < 2 ? t('none') : t('%1 points', each) }));
  return selectControl('smoothing', t('Smoothing'), value, choices, choose);
}

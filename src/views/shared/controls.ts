import { formatInteger } from '../../charts';
import type { ConnectionState } from '../../store/source';
import type { Control } from './control';
import { placeNear } from './places';
import { selectControl } from './select-control';
import type { Translate } from './translate';

/** The step slider with following: null as step follows the newest. */
export function stepsControl(
  steps: readonly number[],
  step: number | null,
  connection: ConnectionState,
  change: (step: number | null) => void,
  t: Translate
): Control {
  const index = step === null ? Math.max(0, steps.length - 1) : Math.max(0, placeNear(steps, step));
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

/** Choose between a linear and a logarithmic scale. */
export function transformControl(
  label: string,
  value: 'linear' | 'log',
  choose: (transform: 'linear' | 'log') => void,
  t: Translate
): Control {
  const words = { linear: t('linear'), log: t('log') };
  return selectControl('transform', label, value, words, choose);
}

/** Choose over how many points a trailing mean goes; a number that is not offered is offered as well while it is chosen. */
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

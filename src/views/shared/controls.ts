import { formatInteger } from '../../charts';
import type { Hello, Phase } from '../../protocol/messages.generated';
import type { ConnectionState } from '../../store/source';
import { isRangeText } from '../../protocol/ranges';
import { own } from '../../protocol/own';
import type { Control } from './control';
import { selectControl } from './select-control';
import type { Translate } from './translate';

/** The flag picker, built from hello. */
export function flagControl(
  hello: Hello | null,
  flag: string,
  change: (flag: string) => void,
  t: Translate
): Control {
  const flags = hello?.flags ?? [];
  const options = flags.map(info => ({
    value: info.name,
    text: info.title,
    disabled: info.layers.length === 0,
    ...(info.reason ? { title: info.reason } : {})
  }));
  if (!flags.some(info => info.name === flag)) {
    options.unshift({ value: flag, text: flag, disabled: false });
  }
  return selectControl('flag', t('Flag'), flag, options, change);
}

/** The picker of a flag's named parts; nothing where it has none. */
export function partControl(
  parts: readonly string[],
  part: string | null,
  change: (part: string) => void,
  t: Translate
): Control[] {
  const named = parts.filter(name => name !== '');
  return named.length < 2
    ? []
    : [
        selectControl(
          'part',
          t('Part'),
          part ?? named[0] ?? '',
          named.map(value => ({ value, text: value })),
          change
        )
      ];
}

/** The layers field with what makes sense as suggestions. */
export function layersControl(
  layers: string,
  known: readonly number[],
  change: (layers: string) => void,
  t: Translate
): Control {
  return {
    kind: 'text',
    id: 'layers',
    label: t('Layers'),
    value: layers,
    suggestions: ['all', ...known.slice(0, 100).map(String)],
    valid: isRangeText,
    change
  };
}

/** The picker of the phase; nothing while only training is traced. */
export function phaseControl(
  hello: Hello | null,
  flag: string,
  phase: Phase,
  change: (phase: Phase) => void,
  t: Translate
): Control[] {
  const phases: readonly Phase[] = own(hello?.config.flags, flag)?.phases ?? ['train'];
  const offered = (['train', 'eval', 'generate'] as const).filter(
    each => each === phase || phases.includes(each)
  );
  return offered.length < 2
    ? []
    : [
        selectControl(
          'phase',
          t('Phase'),
          phase,
          offered.map(value => ({ value, text: t(value) })),
          change
        )
      ];
}

/** The step slider with following: null as step follows the newest. */
export function stepsControl(
  steps: readonly number[],
  step: number | null,
  connection: ConnectionState,
  change: (step: number | null) => void,
  t: Translate
): Control {
  const last = Math.max(0, steps.length - 1);
  const wanted = step;
  const index =
    wanted === null
      ? last
      : steps.reduce(
          (best, each, place) =>
            Math.abs(each - wanted) < Math.abs((steps[best] ?? 0) - wanted) ? place : best,
          last
        );
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

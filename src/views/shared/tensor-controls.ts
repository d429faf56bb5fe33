import type { FlagInfo } from '../../protocol/messages.generated';
import { own } from '../../protocol/records';
import { EMBEDDING, isRangeText } from '../../protocol/ranges';
import type { HeatmapOptions } from '../../protocol/views.generated';
import type { IRunSource } from '../../store/source';
import type { ITensorShape } from '../../store/tensor-data';
import { type Control, selectControl } from './control';
import { rangesField } from './table';
import { phaseWords, rankName, titleWords } from './describe';
import type { Translate } from './translate';

/** The options that say of which tensors a view is. */
export type TensorOptions = Required<
  Pick<HeatmapOptions, 'flag' | 'part' | 'layers' | 'phase' | 'pass' | 'rank'>
>;

/**
 * The controls by which a person says of which tensors a view is. Those with nothing to choose are left out:
 * parts of a flag that has one, phases while only training is traced, passes while only forward ones are,
 * ranks while there is one.
 */
export function tensorControls(
  { hello, name }: Pick<IRunSource, 'hello' | 'name'>,
  options: TensorOptions,
  shape: ITensorShape,
  others: readonly Control[],
  choose: (options: Partial<TensorOptions>) => void,
  t: Translate
): Control[] {
  const { flag, part, layers, phase, pass, rank } = options;
  const traced = own(hello?.config.flags, flag);
  const words = phaseWords(t);
  const phases = (['train', 'eval', 'generate'] as const)
    .filter(each => each === phase || (traced?.phases ?? ['train']).includes(each))
    .map(value => ({ value, text: words[value] }));
  const passes = { forward: t('forward, values'), backward: t('backward, gradients') };
  const hasBackward = [...(shape.passes ?? []), ...(traced?.passes ?? []), pass].includes('backward');
  const seen = shape.ranks ?? [];
  const ranks = rank === null || seen.includes(rank) ? seen : [...seen, rank];
  return [
    { kind: 'name', id: 'run', text: name },
    ...flagControls(hello?.flags ?? [], { flag, part }, shape, choose, t),
    rangesField(
      'layers',
      t('Layers'),
      layers,
      shape.layers.filter(layer => layer !== EMBEDDING),
      value => choose({ layers: value }),
      isRangeText,
      t
    ),
    ...others,
    ...(phases.length < 2
      ? []
      : [selectControl('phase', t('Phase'), phase, phases, value => choose({ phase: value }))]),
    ...(hasBackward
      ? [selectControl('pass', t('Pass'), pass, passes, value => choose({ pass: value }))]
      : []),
    ...(ranks.length < 2 && rank === null
      ? []
      : [
          selectControl(
            'rank',
            t('Rank'),
            String(rank ?? ''),
            [
              { value: '', text: t('lowest of each layer') },
              ...ranks.map(each => ({ value: String(each), text: rankName(each, hello, t) }))
            ],
            value => choose({ rank: value === '' ? null : Number(value) })
          )
        ])
  ];
}

/**
 * Choose a flag, and a part of it where it has several. A flag that is not known is offered while it is
 * chosen.
 */
export function flagControls(
  infos: readonly FlagInfo[],
  { flag, part }: Pick<TensorOptions, 'flag' | 'part'>,
  shape: ITensorShape,
  choose: (options: { flag?: string; part: string | null }) => void,
  t: Translate
): Control[] {
  const flags = infos.map(info => ({
    value: info.name,
    text: titleWords(info.title, t),
    disabled: info.layers.length === 0,
    title: info.reason ? `${info.name}: ${info.reason}` : info.name
  }));
  if (!flags.some(({ value }) => value === flag)) {
    flags.unshift({ value: flag, text: flag, disabled: false, title: flag });
  }
  const parts = shape.parts.filter(each => each !== '').map(value => ({ value, text: value }));
  return [
    selectControl('flag', t('Flag'), flag, flags, value => choose({ flag: value, part: null })),
    ...(parts.length < 2
      ? []
      : [
          selectControl('part', t('Part'), part ?? parts[0]?.value ?? '', parts, value =>
            choose({ part: value })
          )
        ])
  ];
}

import { formatInteger } from '../../charts';
import type { HeatmapOptions } from '../../protocol/views.generated';
import type { IRunSource } from '../../store/source';
import type { ITensorShape } from '../../store/tensor-data';
import { type Control, selectControl } from '../shared/control';
import { colorRangeControl, goControl, stepsControl, transformControl } from '../shared/controls';
import { numberField } from '../shared/table';
import { tensorControls, type TensorOptions } from '../shared/tensor-controls';
import type { Translate } from '../shared/translate';
import type { IShown } from './heatmap-data';
import type { IOfferedText } from './text-source';

/** Generations that are offered by name. */
const MOST_OFFERED = 50;

/** What the toolbar is of. */
export interface IHeatmapToolbar {
  readonly source: Pick<IRunSource, 'connection' | 'hello' | 'name'>;
  readonly options: Readonly<Required<HeatmapOptions>>;
  readonly shape: ITensorShape;
  readonly shown: IShown | null;
  /** Steps to choose from, and the one that is wanted; null follows the newest. */
  readonly steps: readonly number[];
  readonly step: number | null;
  /** Texts of the run by number. */
  readonly offered: readonly IOfferedText[];
}

/** The controls of a heatmap. */
export function heatmapControls(
  { source, options, shape, shown, steps, step, offered }: IHeatmapToolbar,
  choose: (options: Partial<HeatmapOptions>) => void,
  toStep: (step: number | null) => void,
  t: Translate
): Control[] {
  const isText = options.generation !== null;
  const domain = shown?.layers[0]?.scale.domain ?? null;
  const picker = (id: 'head' | 'sample', label: string, count: number): Control[] =>
    count < 2 ? [] : [numberField(id, label, options[id], [0, count - 1], value => choose({ [id]: value }))];
  const others = [
    ...picker('head', t('Head'), shown?.text?.heads ?? shown?.axes.heads ?? 1),
    ...picker(
      'sample',
      isText ? t('Sequence') : t('Sample'),
      shown?.text?.sequences ?? shown?.axes.samples ?? 1
    )
  ];
  const ofTensor = (change: Partial<TensorOptions>): void =>
    choose({
      ...change,
      ...(change.flag === undefined ? {} : { head: 0 }),
      ...(change.phase === undefined ? {} : { step: null })
    });
  const scale = { shared: t('shared'), own: t('own') };
  return [
    ...tensorControls(source, options, shape, others, ofTensor, t).filter(
      // A generation is of one phase and one pass.
      ({ id }) => !isText || (id !== 'phase' && id !== 'pass')
    ),
    ...textControl(offered, options.generation, choose, t),
    ...(isText ? [] : [stepsControl(steps, step, source.connection, toStep, t), goControl(toStep, t)]),
    ...(shown && shown.layers.length > 1
      ? [selectControl('scale', t('Scale'), options.scale, scale, value => choose({ scale: value }))]
      : []),
    transformControl(t('Colours'), options.transform, transform => choose({ transform }), t),
    ...colorRangeControl(options.color_range, domain, choose, t)
  ];
}

/** Choose between a step as it is and the whole text of a generation; nothing where nothing was generated. */
function textControl(
  offered: readonly IOfferedText[],
  value: number | null,
  choose: (options: Partial<HeatmapOptions>) => void,
  t: Translate
): Control[] {
  if (offered.length === 0 && value === null) {
    return [];
  }
  const named = offered.slice(-MOST_OFFERED).reverse();
  const isNamed = value === null || value === 0 || named.some(each => each.generation === value);
  const choices = [
    { value: '', text: t('this step') },
    { value: '0', text: t('newest generation') },
    ...named.map(each => ({
      value: String(each.generation),
      text: [t('generation %1', formatInteger(each.generation)), each.prompt()].filter(Boolean).join(': ')
    })),
    ...(isNamed ? [] : [{ value: String(value), text: t('generation %1', formatInteger(value)) }])
  ];
  return [
    selectControl('generation', t('Positions of'), String(value ?? ''), choices, chosen =>
      choose({ generation: chosen === '' ? null : Number(chosen), sample: 0 })
    )
  ];
}

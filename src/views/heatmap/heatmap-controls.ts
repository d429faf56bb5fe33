import { formatInteger } from '../../charts';
import { rangesText } from '../../protocol/ranges';
import { own } from '../../protocol/records';
import type { HeatmapOptions } from '../../protocol/views.generated';
import { type IRunSource, isOver } from '../../store/source';
import type { ITensorShape, ITensorQuery } from '../../store/tensor-data';
import type { INote } from '../shared/content';
import { type Control, selectControl } from '../shared/control';
import { colorRangeControl, transformControl } from '../shared/controls';
import { capital, flagWords } from '../shared/describe';
import { chosenLayers, layerName, layerWords } from '../shared/layers';
import { retryAction, emptyState, nothingYet, type IState, type IStateActions } from '../shared/states';
import { numberField } from '../shared/table';
import { tensorControls, type TensorOptions } from '../shared/tensor-controls';
import type { Translate } from '../shared/translate';
import type { IShown } from './heatmap-data';
import type { IOfferedText } from './text-source';

/** Generations that are offered by name. */
const MOST_OFFERED = 50;

/** @param steps - Controls that choose a step, where one is drawn. */
export function heatmapControls(
  { source, options, shape, choose, t }: IHeatmapSubject,
  shown: IShown | null,
  offered: readonly IOfferedText[],
  steps: readonly Control[]
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
    ...(isText ? [] : steps),
    ...(shown && shown.layers.length > 1
      ? [selectControl('scale', t('Scale'), options.scale, scale, value => choose({ scale: value }))]
      : []),
    transformControl(t('Colours'), options.transform, transform => choose({ transform }), t),
    ...colorRangeControl(
      options.color_range,
      domain,
      choose,
      () => (shown?.layers ?? []).map(({ slice }) => slice.values),
      t
    )
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

/** Of what a state is, and what it acts on. */
export interface IHeatmapSubject {
  readonly source: IRunSource;
  readonly subject: string;
  readonly shape: ITensorShape;
  readonly options: Readonly<Required<HeatmapOptions>>;
  readonly actions: IStateActions;
  choose(options: Partial<HeatmapOptions>): void;
  readonly t: Translate;
}

export function noValues({ subject, actions, t }: IHeatmapSubject): IState {
  return nothingYet(
    t(
      'Only the shape and the statistics of %1 are here: it was traced with a compressor that keeps no values, or its values were given up for want of room, as a warning says.',
      subject
    ),
    actions,
    t
  );
}

export function noRow(
  layers: readonly number[],
  step: number,
  { subject, shape, options, actions, choose, t }: IHeatmapSubject
): IState {
  const first = shape.layers[0];
  const sentence =
    layers.length === 0
      ? t('Layers %1 are not traced; there are rows of %2.', options.layers, layerWords(shape.layers, t))
      : t('%1 has no row of %2 at step %3.', subject, layerWords(layers, t), formatInteger(step));
  return first === undefined || layers.includes(first)
    ? nothingYet(sentence, actions, t)
    : emptyState(sentence, t('Show %1', layerName(first, t)), () => choose({ layers: String(first) }));
}

export function noText(
  text: IOfferedText | undefined,
  { subject, options, actions, choose, t }: IHeatmapSubject
): IState {
  const step = { label: t('Show this step'), run: () => choose({ generation: null }) };
  const requested = options.generation ?? 0;
  const sentence =
    text === undefined
      ? requested === 0
        ? t('Nothing was generated yet.')
        : t('There is no generation %1.', formatInteger(requested))
      : text.isUnderWay
        ? t('Nothing of %1 in generation %2 has arrived yet.', subject, formatInteger(text.generation))
        : t('%1 was not traced in generation %2.', subject, formatInteger(text.generation));
  return text?.isUnderWay
    ? { kind: 'empty', sentence, action: retryAction(actions, t), more: [step] }
    : { kind: 'empty', sentence, action: step, more: [retryAction(actions, t)] };
}

export function noTexts({ choose, t }: IHeatmapSubject): IState {
  return emptyState(
    t('This installation of Megalens was built without what reads generated texts.'),
    t('Show this step'),
    () => choose({ generation: null })
  );
}

/** That a tensor has no axis of positions to put together. */
export function noPositions({ subject, choose, t }: IHeatmapSubject): IState {
  return emptyState(
    t('%1 has no axis of positions that could be put together.', subject),
    t('Show this step'),
    () => choose({ generation: null })
  );
}

/** Where the newest step is followed: which of the layers it follows are not traced any more, and what is. */
export async function untraced(
  layers: readonly number[],
  query: ITensorQuery,
  step: number | null,
  { source, subject, shape, options, actions, choose, t }: IHeatmapSubject
): Promise<INote[]> {
  const { flag, phase } = options;
  const { hello, connection } = source;
  if (step !== null || hello === null || isOver(source) || connection.kind === 'closed') {
    return [];
  }
  const setting = own(hello.config.flags, flag);
  const traced = setting === undefined ? [] : chosenLayers(setting.layers ?? 'all', shape.layers);
  const gone = layers.filter(layer => !traced.includes(layer));
  const ends = gone.length > 0 ? await source.steps(flag, phase, { ...query, layers: gone }) : [];
  const last = ends[ends.length - 1];
  if (last === undefined) {
    return [];
  }
  const text = t(
    '%1 of %2: not traced any more since step %3.',
    capital(layerWords(gone, t)),
    subject,
    formatInteger(last)
  );
  const others = Object.keys(hello.config.flags);
  const [layer, other] = [traced[0], others.find(name => name !== flag)];
  const action =
    layer !== undefined
      ? { label: t('Show %1', layerName(layer, t)), run: () => choose({ layers: rangesText([layer]) }) }
      : other !== undefined
        ? {
            label: t('Show %1', flagWords(hello, other, null, t)),
            run: () => choose({ flag: other, part: null, layers: 'all', head: 0 })
          }
        : retryAction(actions, t);
  return [{ text, action }];
}

import { formatInteger } from '../../charts';
import { isRangeText } from '../../protocol/ranges';
import type { AttentionOptions } from '../../protocol/views.generated';
import type { IRunSource } from '../../store/source';
import type { Control } from '../shared/control';
import { goControl, stepsControl } from '../shared/controls';
import { generationControls } from '../shared/generation-pick';
import { selectControl } from '../shared/select-control';
import type { Translate } from '../shared/translate';
import type { IAttentionFound } from './attention-reader';

type Options = Required<AttentionOptions>;

/** What the toolbar is of. */
export interface IAttentionToolbar {
  readonly source: Pick<IRunSource, 'connection' | 'name'>;
  readonly options: Options;
  readonly found: IAttentionFound | null;
  /** Step of the training that is wanted; null follows the newest. */
  readonly step: number | null;
  /** Controls of the picture. */
  readonly own: readonly Control[];
  /** What to draw again after one head in full; null where none is. */
  readonly back: Pick<Options, 'heads' | 'kind' | 'layers'> | null;
}

/** The controls of attention. */
export function attentionControls(
  { source, options, found, step, own, back }: IAttentionToolbar,
  choose: (options: Partial<AttentionOptions>) => void,
  t: Translate
): Control[] {
  const isWritten = found?.generation !== undefined;
  const kinds = { maps: t('maps'), heads: t('overview of heads') };
  const known = (numbers: readonly number[]): string[] => ['all', ...numbers.slice(0, 100).map(String)];
  const heads = Array.from({ length: found?.text?.heads ?? 0 }, (_, head) => head);
  const ranges = (id: 'heads' | 'layers', label: string, suggestions: readonly string[]): Control => ({
    kind: 'text',
    id,
    label,
    value: options[id],
    suggestions,
    valid: text => isRangeText(text) && !text.includes('-1'),
    change: text => choose({ [id]: text })
  });
  const chip: Control[] = back
    ? [
        {
          kind: 'chip',
          id: 'head',
          text: t('Layer %1, head %2', options.layers, options.heads),
          title: t('Draw all that was drawn before'),
          remove: () => choose(back)
        }
      ]
    : [];
  return [
    { kind: 'name', id: 'run', text: source.name },
    ...(isWritten || options.step === null
      ? generationControls(
          found?.offered ?? [],
          found?.generation,
          options,
          change => choose({ ...change, step: null, position: null }),
          t
        )
      : []),
    selectControl('kind', t('Show'), options.kind, kinds, kind =>
      choose(
        kind === 'heads'
          ? { kind, layers: 'all', heads: 'all', color_range: null }
          : { kind, color_range: null }
      )
    ),
    ranges('layers', t('Layers'), known(found?.layers ?? [])),
    ranges('heads', t('Heads'), known(heads)),
    ...chip,
    ...(isWritten ? [] : trainingControls(source, options, found, step, choose, t)),
    ...own,
    ...(options.position === null
      ? []
      : [
          {
            kind: 'chip',
            id: 'position',
            text: t('position %1', formatInteger(options.position)),
            title: t('Follow the newest position'),
            remove: () => choose({ position: null })
          } satisfies Control
        ])
  ];
}

/** The controls of a training's attention: its step and its sample. */
function trainingControls(
  source: IAttentionToolbar['source'],
  options: Options,
  found: IAttentionFound | null,
  step: number | null,
  choose: (options: Partial<AttentionOptions>) => void,
  t: Translate
): Control[] {
  const samples = found?.text?.sequences ?? 1;
  const toStep = (chosen: number | null): void => choose({ step: chosen });
  const hasTexts = (found?.offered.length ?? 0) > 0;
  return [
    ...(samples < 2
      ? []
      : [
          {
            kind: 'number',
            id: 'sequence',
            label: t('Sample'),
            value: options.sequence,
            least: 0,
            most: samples - 1,
            change: sequence => choose({ sequence })
          } satisfies Control
        ]),
    stepsControl(found?.steps ?? [], step, source.connection, toStep, t),
    goControl(toStep, t),
    ...(hasTexts
      ? [
          {
            kind: 'chip',
            id: 'training',
            text: t('Of the training'),
            title: t('Show what was generated'),
            remove: () => choose({ step: null, position: null })
          } satisfies Control
        ]
      : [])
  ];
}

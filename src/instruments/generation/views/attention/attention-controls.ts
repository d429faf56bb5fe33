import { isRangeText } from '../../../../protocol/ranges';
import type { AttentionOptions } from '../../../../protocol/views.generated';
import type { IRunSource } from '../../../../store/source';
import { type Control, selectControl } from '../../../../views/shared/control';
import { goControl, positionChip, stepsControl } from '../../../../views/shared/controls';
import { chip, numberField, rangesField } from '../../../../views/shared/table';
import { generationControls } from '../shared/generation-view';
import type { Translate } from '../../../../views/shared/translate';
import type { IAttentionFound } from './attention-reader';

type Options = Required<AttentionOptions>;

export interface IAttentionToolbar {
  readonly source: Pick<IRunSource, 'connection' | 'name'>;
  readonly options: Options;
  readonly found: IAttentionFound | null;
  /** Step of the training that is wanted; null follows the newest. */
  readonly step: number | null;
  readonly own: readonly Control[];
  /** What to draw again after one head in full; null where none is. */
  readonly back: Pick<Options, 'heads' | 'kind' | 'layers'> | null;
}

export function attentionControls(
  { source, options, found, step, own, back }: IAttentionToolbar,
  choose: (options: Partial<AttentionOptions>) => void,
  t: Translate
): Control[] {
  const isWritten = found?.generation !== undefined;
  const kinds = { maps: t('maps'), heads: t('overview of heads') };
  const heads = Array.from({ length: found?.text?.heads ?? 0 }, (_, head) => head);
  const ranges = (id: 'heads' | 'layers', label: string, known: readonly number[]): Control =>
    rangesField(
      id,
      label,
      options[id],
      known,
      text => choose({ [id]: text }),
      text => isRangeText(text) && !text.includes('-1')
    );
  const alone = back
    ? [
        chip(
          'head',
          t('Layer %1, head %2', options.layers, options.heads),
          t('Draw all that was drawn before'),
          () => choose(back)
        )
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
    ranges('layers', t('Layers'), found?.layers ?? []),
    ranges('heads', t('Heads'), heads),
    ...alone,
    ...(isWritten ? [] : trainingControls(source, options, found, step, choose, t)),
    ...own,
    ...positionChip(options.position, choose, t)
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
          numberField('sequence', t('Sample'), options.sequence, [0, samples - 1], sequence =>
            choose({ sequence })
          )
        ]),
    stepsControl(found?.steps ?? [], step, source.connection, toStep, t),
    goControl(toStep, t),
    ...(hasTexts
      ? [
          chip('training', t('Of the training'), t('Show what was generated'), () =>
            choose({ step: null, position: null })
          )
        ]
      : [])
  ];
}

import { formatInteger } from '../../../../charts';
import type { EffectsOptions } from '../../../../protocol/views.generated';
import { isUnderWay, type IGeneration } from '../../store/generations';
import {
  emptyState,
  nothingYet,
  snippetState,
  type IState,
  type IStateActions
} from '../../../../views/shared/states';
import type { Translate } from '../../../../views/shared/translate';

type Kind = Required<EffectsOptions>['kind'];

export interface IEffectsAsked {
  /** The generation that was asked for; undefined where there is none. */
  readonly generation: IGeneration | undefined;
  readonly options: Pick<Required<EffectsOptions>, 'generation' | 'kind' | 'sequence'>;
  readonly choose: (options: Partial<EffectsOptions>) => void;
  readonly actions: IStateActions;
}

/** What writes a text under a perturbation. */
const SNIPPETS: Readonly<Record<Kind, string>> = {
  positions: 'lab.generate("…", perturb=megalens.Noise1(0.1))',
  layers: 'lab.generate("…", perturb=megalens.Noise1(0.1))',
  sweep: 'lab.generate("…", perturb=megalens.Noise1(0.1), sweep={"coefficient": [0.01, 0.1, 1.0]})'
};

/** Why there is nothing to draw, where no effect is here. */
export function noEffects(asked: IEffectsAsked, t: Translate): IState {
  const { generation, options, choose, actions } = asked;
  if (generation?.request?.perturb) {
    const number = formatInteger(generation.generation);
    const sentence = isUnderWay(generation)
      ? t('Generation %1 has not been compared with its clean control yet.', number)
      : generation.state === 'finished'
        ? t('Nothing is here of what the perturbation of generation %1 changed.', number)
        : t('Generation %1 ended before it was compared. %2', number, generation.message).trim();
    return nothingYet(sentence, actions, t);
  }
  const code = SNIPPETS[options.kind];
  if (options.generation !== null) {
    const number = formatInteger(options.generation);
    const sentence = generation
      ? t('Generation %1 was written without a perturbation. In a cell:', number)
      : t('There is no generation %1. In a cell:', number);
    const newest = { label: t('Show the newest'), run: () => choose({ generation: null, sequence: 0 }) };
    return snippetState(sentence, code, actions, t, [newest]);
  }
  const sentence = t('No text was written under a perturbation. In a cell:');
  return snippetState(sentence, code, actions, t);
}

/**
 * Why there is nothing to draw of effects that are here: they are of another kind, or of another sequence.
 */
export function otherEffects(asked: IEffectsAsked, there: readonly Kind[], t: Translate): IState {
  const { generation, options, choose, actions } = asked;
  const [other] = there;
  const number = formatInteger(generation?.generation ?? NaN);
  const show: Readonly<Record<Kind, string>> = {
    positions: t('Show positions'),
    layers: t('Show layers'),
    sweep: t('Show the sweep')
  };
  if (other !== undefined) {
    const sentences: Readonly<Record<Kind, string>> = {
      positions: t('Generation %1 is not compared by position: it is a sweep.', number),
      layers: t('Generation %1 is not compared by layer and position.', number),
      sweep: t('Generation %1 is no sweep.', number)
    };
    return {
      kind: 'empty',
      sentence: sentences[options.kind],
      action: { label: show[other], run: () => choose({ kind: other }) },
      ...(options.kind === 'sweep'
        ? {
            code: SNIPPETS.sweep,
            more: [{ label: t('Copy this line'), run: () => actions.copy(SNIPPETS.sweep) }]
          }
        : {})
    };
  }
  return emptyState(
    t('Generation %1 has no sequence %2 here.', number, formatInteger(options.sequence)),
    t('Show sequence 0'),
    () => choose({ sequence: 0 })
  );
}

/** Why there are no distances to draw of effects that are here. */
export function noDistances({ choose }: IEffectsAsked, t: Translate): IState {
  return emptyState(t('No hidden states were compared.'), t('Show the KL divergence'), () =>
    choose({ measure: 'kl' })
  );
}

import { formatInteger } from '../../../../charts';
import type { LensOptions } from '../../../../protocol/views.generated';
import { isUnderWay, type IGeneration } from '../../store/generations';
import type { IRunSource } from '../../../../store/source';
import {
  emptyState,
  nothingYet,
  snippetState,
  type IState,
  type IStateActions
} from '../../../../views/shared/states';
import type { Translate } from '../../../../views/shared/translate';

/** Candidates that are read of each layer. */
const CANDIDATES = 5;
/** What reads a text with the lens. */
export const SNIPPET = `lab.generate("…", lens=${CANDIDATES})`;

/** What a lens was asked of. */
export interface ILensAsked {
  readonly source: Pick<IRunSource, 'generate' | 'hello'>;
  /** The generation that was asked for; undefined where there is none. */
  readonly asked: IGeneration | undefined;
  /** The newest one, read with the lens or not. */
  readonly newest: IGeneration | undefined;
  readonly options: Pick<Required<LensOptions>, 'generation' | 'sequence'>;
  readonly choose: (options: Partial<LensOptions>) => void;
  readonly actions: IStateActions;
}

/** Why there is no lens to draw: of the generation that was asked for, or of any. */
export function noLens(of: ILensAsked, t: Translate): IState {
  const { source, asked, options, choose, actions } = of;
  const refused = source.hello?.generation?.no_lens;
  if (refused !== undefined) {
    return nothingYet(t('This model has no logit lens: %1', refused), actions, t);
  }
  if (asked && (asked.request?.lens ?? 0) > 0) {
    const number = formatInteger(asked.generation);
    const sentence = isUnderWay(asked)
      ? t('Nothing of generation %1 has been read yet.', number)
      : asked.state === 'finished'
        ? t(
            'Nothing is here of what the logit lens read of generation %1, sequence %2.',
            number,
            options.sequence
          )
        : t('Generation %1 ended before anything was read. %2', number, asked.message).trim();
    return options.sequence > 0
      ? emptyState(sentence, t('Show sequence 0'), () => choose({ sequence: 0 }))
      : nothingYet(sentence, actions, t);
  }
  const show = { label: t('Show the newest'), run: () => choose({ generation: null, sequence: 0 }) };
  const sentence =
    options.generation === null
      ? t('No text was read with the logit lens. In a cell:')
      : asked
        ? t('Generation %1 was written without the logit lens. In a cell:', formatInteger(options.generation))
        : t('There is no generation %1. In a cell:', formatInteger(options.generation));
  return snippetState(sentence, SNIPPET, actions, t, [
    ...anew(of, t),
    ...(options.generation === null ? [] : [show])
  ]);
}

/** Have the same text written again, with the lens; nothing where nobody can be asked. */
function anew({ source, asked, newest, choose }: ILensAsked, t: Translate): IState['action'][] {
  const request = (asked ?? newest)?.request;
  if (!request || !source.generate) {
    return [];
  }
  const run = async (): Promise<void> => {
    await source.generate?.({ ...request, lens: CANDIDATES });
    choose({ generation: null, sequence: 0 });
  };
  return [{ label: t('Write it again with the lens'), run }];
}

/** Why a lens that was read has nothing to draw. */
export function noLayer(
  layers: string,
  choose: (options: Partial<LensOptions>) => void,
  t: Translate
): IState {
  return emptyState(t('Layers %1 were not read with the logit lens.', layers), t('Show all layers'), () =>
    choose({ layers: 'all' })
  );
}

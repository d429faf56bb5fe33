import { formatInteger } from '../../../../charts';
import { isUnderWay } from '../../store/generations';
import type { IRunSource } from '../../../../store/source';
import {
  again,
  emptyState,
  snippetState,
  type IState,
  type IStateActions
} from '../../../../views/shared/states';
import type { Translate } from '../../../../views/shared/translate';
import type { ITextFacts, TokensChoice } from './text-facts';
import { stateWords } from './token-words';

/** What makes a model write text. */
const ASK = 'lab.generate("…")';
const SERVE = 'lab = megalens.serve(model, tokenizer)';

/** What the state's actions do. */
export interface ITextActions extends Pick<IStateActions, 'copy' | 'retry'> {
  choose(options: Partial<TokensChoice>): void;
  /** Ends a generation that waits or is written; absent where nobody can. */
  end?: ((generation: number) => void) | undefined;
}

/** Why there is no text to draw, and what to do about it. */
export function noText(
  source: Pick<IRunSource, 'generate'>,
  { generations, text }: Pick<ITextFacts, 'generations' | 'text'>,
  { generation, sequence }: TokensChoice,
  { choose, copy, end, retry }: ITextActions,
  t: Translate
): IState {
  const retried = again({ retry }, t);
  const newest = {
    label: t('Show the newest'),
    run: () => choose({ generation: null, sequence: 0, position: null })
  };
  if (generations.length === 0) {
    const code = source.generate ? ASK : SERVE;
    const sentence = source.generate
      ? t('Nothing was generated yet. Write a prompt above, or in a cell:')
      : t('Nothing was generated, and this run takes no prompts. In a cell:');
    return snippetState(sentence, code, { copy, retry }, t);
  }
  if (text === null) {
    const last = formatInteger(generations[generations.length - 1]?.generation ?? NaN);
    const sentence = t(
      'There is no generation %1. The newest is %2.',
      formatInteger(generation ?? NaN),
      last
    );
    return { kind: 'empty', sentence, action: newest, more: [retried] };
  }
  const shown = text.generation;
  const number = formatInteger(shown.generation);
  const others = generation === null ? [] : [newest];
  if (shown.sequences > 0 && sequence >= shown.sequences) {
    const count = formatInteger(shown.sequences);
    return emptyState(
      t('Generation %1 has no sequence %2: it has %3, counted from 0.', number, sequence, count),
      t('Show sequence 0'),
      () => choose({ sequence: 0, position: null })
    );
  }
  if (isUnderWay(shown)) {
    return {
      kind: 'loading',
      sentence: t('Generation %1 %2.', number, waitWords(shown.state, stateWords(shown, t), t)),
      action: end ? { label: t('Cancel'), run: () => end(shown.generation) } : retried
    };
  }
  if (shown.state === 'failed') {
    const said = shown.message || t('Nobody said why.');
    return {
      kind: 'error',
      sentence: t('Generation %1 failed: %2', number, said),
      action: { label: t('Copy this sentence'), run: () => copy(said) },
      more: [retried, ...others]
    };
  }
  const sentence =
    shown.state === 'cancelled'
      ? t('Generation %1 was cancelled before anything was written.', number)
      : t(
          'The tokens of generation %1 are not here: they were given up to stay within memory, or this file does not hold them.',
          number
        );
  return { kind: 'empty', sentence, action: retried, more: others };
}

function waitWords(state: string, words: string, t: Translate): string {
  return state === 'queued' ? words : t('reads its prompts');
}

import { formatInteger } from '../../../../charts';
import type { ConnectionState } from '../../../../store/source';
import type { INote } from '../../../../views/shared/content';
import { type Control, selectControl } from '../../../../views/shared/control';
import { omissionWords } from '../../../../views/shared/describe';
import { nearestIndex } from '../../../../views/shared/scale';
import type { Translate } from '../../../../views/shared/translate';
import { generationControls, generationName } from '../shared/generation-view';
import type { ITextFacts, TokensChoice, IWrittenText } from './text-facts';
import { lengthOf, tokenName, differenceWords, missingWords } from './text-facts';
import { colorWords, type TokenColor } from './token-color';

const COLORS: readonly TokenColor[] = ['probability', 'surprise', 'entropy', 'rank', 'none'];
/** Generations that are offered to stand beside the text. */
const MOST_OTHERS = 30;

interface ITextToolbar {
  readonly connection: ConnectionState;
  /** Position that is looked at. */
  readonly looked: number | null;
  readonly isFollowing: boolean;
  choose(options: Partial<TokensChoice>): void;
  /** Replay up to a position; null shows all that is written. */
  replay(position: number | null): void;
  copy(): void;
  readonly t: Translate;
}

/** The controls of a text: which one, its colours, its comparison, and up to which position it is shown. */
export function textControls(
  run: string,
  facts: ITextFacts,
  options: TokensChoice,
  { choose, connection, copy, isFollowing, looked, replay, t }: ITextToolbar
): Control[] {
  const { generations, text } = facts;
  const positions = (text?.tokens ?? []).map(({ position }) => position);
  const at = looked === null ? -1 : nearestIndex(positions, looked);
  const token = text?.tokens[at];
  const live = connection.kind !== 'recorded' && connection.kind !== 'closed';
  const colors = COLORS.map(each => ({ value: each, text: colorWords(each, t) }));
  return [
    { kind: 'name', id: 'run', text: run },
    {
      kind: 'steps',
      id: 'position',
      label: t('Position'),
      followLabel: isFollowing
        ? t('Stop following and stay at this position')
        : t('Follow the newest position'),
      count: positions.length,
      index: Math.max(0, at),
      text: token ? t('position %1, %2', formatInteger(token.position), tokenName(token)) : t('nothing yet'),
      following: isFollowing,
      // A text that is written to its end is shown again from its beginning to its end.
      canFollow: live || !isFollowing,
      change: index => replay(index === null ? null : (positions[index] ?? null))
    },
    ...generationControls(
      generations,
      text?.generation,
      options,
      chosen => choose({ ...chosen, position: null }),
      t
    ),
    selectControl('color', t('Colour by'), options.color, colors, color => choose({ color })),
    ...comparisonControl(facts, options, choose, t),
    {
      kind: 'button',
      id: 'copy',
      text: t('Copy text'),
      title: t('Put the text on the clipboard, whole characters only'),
      isDisabled: positions.length === 0,
      press: copy
    }
  ];
}

/** Chooses what stands beside the text, where there is anything. */
function comparisonControl(
  { generations, runs, text }: ITextFacts,
  { other, other_run: run }: TokensChoice,
  choose: (options: Partial<TokensChoice>) => void,
  t: Translate
): Control[] {
  const offered = generations
    .filter(each => each !== text?.generation)
    .slice(-MOST_OTHERS)
    .reverse();
  const value = run !== null ? `run ${run}` : other === null ? '' : `generation ${other}`;
  const choices = [
    { value: '', text: (text?.generation.control ?? 0) > 0 ? t('clean control') : t('nothing') },
    ...offered.map(each => ({ value: `generation ${each.generation}`, text: generationName(each) })),
    ...runs.map(({ id, name }) => ({ value: `run ${id}`, text: t('run %1', name) }))
  ];
  const known = choices.some(each => each.value === value);
  if (choices.length === 1 && known) {
    return [];
  }
  const all = known ? choices : [...choices, { value, text: run ?? formatInteger(other ?? NaN) }];
  return [
    selectControl('other', t('Beside it'), value, all, chosen => {
      const [kind = '', name = ''] = chosen.split(/ (.*)/s);
      choose({
        other: kind === 'generation' ? Number(name) : null,
        other_run: kind === 'run' ? name : null
      });
    })
  ];
}

export interface INoteActions {
  choose(options: Partial<TokensChoice>): void;
  copy(text: string): void;
  goTo(position: number): void;
}

/** What became of a text: a sentence, with what can be done. */
export function failedNotes({ generation }: IWrittenText, copy: INoteActions['copy'], t: Translate): INote[] {
  const sentence = generation.message || t('Nobody said why.');
  const action = { label: t('Copy this sentence'), run: () => copy(sentence) };
  return generation.state === 'failed'
    ? [{ text: t('It failed: %1', sentence), tone: 'nonfinite', action }]
    : [];
}

/** How a text differs from the one beside it, or that there is none. */
export function comparisonNotes(
  { difference, missing, other, text }: ITextFacts,
  { choose, goTo }: Pick<INoteActions, 'choose' | 'goTo'>,
  t: Translate
): INote[] {
  if (missing) {
    const action = {
      label: t('Show nothing beside it'),
      run: () => choose({ other: null, other_run: null })
    };
    return [{ text: missingWords(missing, t), tone: 'finding', action }];
  }
  if (!text || !other) {
    return [];
  }
  const run = (): void => (difference === null ? undefined : goTo(difference));
  const action = { label: t('Go there'), isDisabled: difference === null, run };
  return [{ text: differenceWords(text, other, difference, t), tone: 'finding', action }];
}

/**
 * What of a text is not literal or not here, a sentence each.
 * @param lineWords - Says which lines are in sight, of a text so long.
 */
export function textCaption(
  { generation, tokens }: IWrittenText,
  { difference, upTo }: { readonly difference: number | null; readonly upTo: number | null },
  lineWords: (length: number) => readonly string[],
  t: Translate
): string[] {
  const length = lengthOf({ tokens });
  return [
    ...lineWords(length),
    ...(upTo === null ? [] : [t('Up to position %1; what came after it is pale.', formatInteger(upTo))]),
    ...(tokens.some(({ isPrompt }) => isPrompt) ? [t('Tokens of the prompt are underlined.')] : []),
    ...(difference === null ? [] : [t('The first difference has an orange outline.')]),
    ...omissionWords({ evictedRows: length - tokens.length }, t),
    ...(generation.state !== 'failed' && generation.message !== '' ? [generation.message] : [])
  ];
}

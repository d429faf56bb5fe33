import { formatInteger } from '../../../../charts';
import type { ConnectionState } from '../../../../store/source';
import { type Control, selectControl } from '../../../../views/shared/control';
import { generationControls, generationName } from '../shared/generation-view';
import { placeNear } from '../../../../views/shared/places';
import type { Translate } from '../../../../views/shared/translate';
import type { ITextFacts, TokensChoice } from './text-facts';
import { colorWords, type TokenColor } from './token-layout';
import { tokenName } from './token-words';

const COLORS: readonly TokenColor[] = ['probability', 'surprise', 'entropy', 'rank', 'none'];
/** Generations that are offered to stand beside the text. */
const MOST_OTHERS = 30;

/** What the toolbar acts on. */
export interface ITextToolbar {
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

/** The controls of a text: which one, its colours, what stands beside it, and up to which position it is shown. */
export function textControls(
  run: string,
  facts: ITextFacts,
  options: TokensChoice,
  { choose, connection, copy, isFollowing, looked, replay, t }: ITextToolbar
): Control[] {
  const { generations, text } = facts;
  const positions = (text?.tokens ?? []).map(({ position }) => position);
  const place = looked === null ? -1 : placeNear(positions, looked);
  const token = text?.tokens[place];
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
      index: Math.max(0, place),
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
    selectControl('color', t('Colours'), options.color, colors, color => choose({ color })),
    ...besideControl(facts, options, choose, t),
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
function besideControl(
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

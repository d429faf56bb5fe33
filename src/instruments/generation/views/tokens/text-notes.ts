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
import { type ITextRequest, colorWords, type TokenColor } from './token-layout';

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
  turn(by: -1 | 1): void;
}

/** What became of a text, and which lines are not in sight: a sentence each, with what can be done. */
export function textNotes(
  { generation }: IWrittenText,
  { layout, inSight: [from, to] }: Pick<ITextRequest, 'layout' | 'inSight'>,
  { copy, turn }: Pick<INoteActions, 'copy' | 'turn'>,
  t: Translate
): INote[] {
  const notes: INote[] = [];
  if (generation.state === 'failed') {
    const sentence = generation.message || t('Nobody said why.');
    const action = { label: t('Copy this sentence'), run: () => copy(sentence) };
    notes.push({ text: t('It failed: %1', sentence), tone: 'nonfinite', action });
  }
  if (from > 0) {
    const action = { label: t('Show the lines before'), run: () => turn(-1) };
    notes.push({ text: t('%1 lines before these.', formatInteger(from)), action });
  }
  if (to < layout.lines) {
    const action = { label: t('Show the lines after'), run: () => turn(1) };
    notes.push({ text: t('%1 lines after these.', formatInteger(layout.lines - to)), action });
  }
  return notes;
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

/** What of a text is not literal or not here, a sentence each. */
export function textCaption(
  text: IWrittenText,
  { difference, layout, upTo, inSight: [from, to] }: ITextRequest,
  t: Translate
): string[] {
  const { generation, tokens } = text;
  const shown = layout.boxes.filter(({ line }) => line >= from && line < to);
  const position = (at: number): string => formatInteger(tokens[shown.at(at)?.at ?? -1]?.position ?? NaN);
  const length = lengthOf(text);
  return [
    ...(layout.lines > MOST_LINES
      ? [
          t(
            'Lines %1 to %2 of %3: positions %4 to %5 of %6.',
            formatInteger(from + 1),
            formatInteger(to),
            formatInteger(layout.lines),
            position(0),
            position(-1),
            formatInteger(length)
          )
        ]
      : []),
    ...(upTo === null ? [] : [t('Up to position %1; what came after it is pale.', formatInteger(upTo))]),
    ...(tokens.some(({ isPrompt }) => isPrompt) ? [t('Tokens of the prompt are underlined.')] : []),
    ...(difference === null ? [] : [t('The first difference has an orange outline.')]),
    ...omissionWords({ evictedRows: length - tokens.length }, t),
    ...(generation.state !== 'failed' && generation.message !== '' ? [generation.message] : [])
  ];
}

/** Lines of a text that are drawn at once. */
const MOST_LINES = 40;

/** Which lines of a long text are in sight: the last, those about the chosen one, or those paged to. */
export class LinesInSight {
  /**
   * Return the first line, and the one after the last.
   * @param looked - Line that is looked at; null follows the end.
   */
  over(lines: number, looked: number | null): readonly [number, number] {
    const last = Math.max(0, lines - MOST_LINES);
    if (looked !== this._looked) {
      this._looked = looked;
      this._pagedTop = null;
      if (looked !== null && (looked < this._top || looked >= this._top + MOST_LINES)) {
        this._top = looked - (MOST_LINES >> 1);
      }
    }
    // Who turned to the end again follows it.
    this._pagedTop = this._pagedTop !== null && this._pagedTop < last ? this._pagedTop : null;
    this._top = Math.max(0, Math.min(this._pagedTop ?? (looked === null ? last : this._top), last));
    return [this._top, Math.min(lines, this._top + MOST_LINES)];
  }

  turn(by: -1 | 1): void {
    // One line stays, so that the eye finds its way.
    this._hold(this._top + by * (MOST_LINES - 1));
  }

  /** Bring a line into sight; answers whether others are shown now. */
  show(line: number): boolean {
    const before = this._top;
    const top = Math.max(Math.min(before, line), line - MOST_LINES + 1);
    if (top !== before) {
      this._hold(top);
    }
    return top !== before;
  }

  private _hold(top: number): void {
    this._top = Math.max(0, top);
    this._pagedTop = this._top;
  }

  private _top = 0;
  private _looked: number | null = null;
  private _pagedTop: number | null = null;
}

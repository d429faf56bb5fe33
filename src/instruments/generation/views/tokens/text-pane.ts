import { SERVE, surenessScale } from '../shared/generation-view';
import { COLORS, DARK_THEME, formatInteger, LIGHT_THEME } from '../../../../charts';
import type { TokensOptions } from '../../../../protocol/views.generated';
import type { IPointed } from '../../../../store/run-link';
import type { IRunSource, SourceChange } from '../../../../store/source';
import { TextPicture, type ITextRead } from '../../../../views/kits/text/text-picture';
import { tokenWords } from '../../../../views/kits/text/token-words';
import type { IMark, Loaded } from '../../../../views/shared/content';
import type { Control } from '../../../../views/shared/control';
import type { ILinkedMarks } from '../../../../views/shared/links';
import { positionShown } from '../../../../views/shared/pinned-step';
import type { ITip } from '../../../../views/shared/table';
import { PartModel, type IViewEnvironment } from '../../../../views/shared/view-model';
import type { IState } from '../../../../views/shared/states';
import { retryAction, emptyState, snippetState } from '../../../../views/shared/states';
import { isUnderWay, type IToken } from '../../store/generations';
import { percent, spanName } from '../attention/attention-text';
import type { IRankedKey } from '../attention/attention-maps';
import { LookedAt } from './looked-at';
import type { ITextFacts, IWrittenText, TextReader } from './text-facts';
import {
  isLost,
  lostWords,
  stateWords,
  mostSurprising,
  surpriseWords,
  textTitle,
  tokenTip
} from './text-facts';
import type { INoteActions } from './text-notes';
import { textControls, comparisonNotes, textCaption, failedNotes } from './text-notes';
import { colorValue, colorWords } from './token-color';

/** What makes a model write text. */
const ASK = 'lab.generate("…")';

/** Tokens that a tip says are looked at. */
const TIP_KEYS = 3;
/** What is lit less could not be seen. */
const LEAST_STRENGTH = 0.1;
/** Characters of a text that its summary says. */
const MOST_SAID = 300;

/** One of the two texts: what the view shows, or what stands beside it. */
export type Which = 'other' | 'text';

/** A text, token by token, in boxes that say how sure the model was. */
export class TextPane extends PartModel<TokensOptions, TextReader> {
  constructor(
    source: IRunSource,
    env: IViewEnvironment,
    reader: TextReader,
    private readonly _which: Which,
    private readonly _end: (generation: number) => void
  ) {
    super(source, env, reader);
  }

  // A text is read, not zoomed into.
  override readonly zooms = { axes: 'x', least: Infinity } as const;

  override get followsPosition(): boolean {
    return true;
  }

  override get isAwaited(): boolean {
    return true;
  }

  readonly subject = this.t('Tokens');

  concerns(change: SourceChange): boolean {
    return this.reader.concerns(change);
  }

  async load(): Promise<Loaded> {
    const { _noteActions: actions, chosen, t } = this;
    const facts = await this.reader.facts(chosen);
    const text = facts[this._which];
    this._picture.clear();
    this._text = null;
    if (text === null || text.tokens.length === 0) {
      return { state: this._nothing(facts, text) };
    }
    this._text = text;
    const { position: upTo } = chosen;
    const drawn = this._picture.draw(this._readOf(facts, text));
    return {
      content: {
        ...drawn,
        title: textTitle(text, this.source.hello?.sites ?? [], t),
        notes: [
          ...(this._which === 'text' ? comparisonNotes(facts, actions, t) : []),
          ...failedNotes(text, actions.copy, t),
          ...this._picture.notes
        ],
        caption: textCaption(
          text,
          { difference: facts.difference, upTo },
          length => this._picture.lineWords(length),
          t
        ),
        summary: this._summary(text, upTo)
      }
    };
  }

  override controls(): Control[] {
    const { last: facts } = this.reader;
    const { chosen, env, source, t } = this;
    return this._which === 'other' || facts === null
      ? []
      : textControls(source.name, facts, chosen, {
          connection: source.connection,
          looked: this._lookedAt(facts.text),
          isFollowing: chosen.position === null && env.pinnedPosition === null,
          choose: options => this.pick(options),
          replay: position => this._replay(facts.text, position),
          copy: () => void this.actions.copy(plainText(facts.text)),
          t
        });
  }

  protected override get drawn(): TextPicture<IToken> {
    return this._picture;
  }

  /** What the token looks at. */
  override bandOf(mark: IMark): readonly IMark[] {
    const token = this._picture.at(mark);
    return token ? this._lights(token.position, null) : [];
  }

  override pointedBy(mark: IMark): IPointed {
    // What stands beside is the same position of another text: views follow the one that is shown.
    const text = this.reader.last?.text;
    return {
      step: null,
      layer: null,
      position: this._picture.at(mark)?.position ?? null,
      generation: text?.generation.generation ?? null,
      sequence: text?.sequence ?? null
    };
  }

  override marksOf({ generation, layer, position, sequence }: IPointed): ILinkedMarks {
    const text = this.reader.last?.text;
    const isOurs = generation === text?.generation.generation && (sequence ?? 0) === text?.sequence;
    const { _picture: picture } = this;
    const mark = isOurs && typeof position === 'number' ? picture.markOf(picture.indexOf(position)) : null;
    return { marks: mark ? [mark, ...this._lights(position as number, layer)] : [] };
  }

  override insight(): IMark | null {
    const token = this._text && mostSurprising(written(this._text, this.chosen.position));
    return token ? this._show(token.position) : null;
  }

  /** Why there is no text to draw, and what to do about it. */
  private _nothing({ generations }: ITextFacts, text: IWrittenText | null): IState {
    const { actions, source, t } = this;
    const { generation, sequence } = this.chosen;
    const retried = retryAction(actions, t);
    const newest = {
      label: t('Show the newest'),
      run: () => this.pick({ generation: null, sequence: 0, position: null })
    };
    if (generations.length === 0) {
      const code = source.generate ? ASK : SERVE;
      const sentence = source.generate
        ? t('Nothing was generated yet. Write a prompt above, or in a cell:')
        : t('Nothing was generated, and this run takes no prompts. In a cell:');
      return snippetState(sentence, code, actions, t);
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
        () => this.pick({ sequence: 0, position: null })
      );
    }
    if (isUnderWay(shown)) {
      return {
        kind: 'loading',
        sentence: t(
          'Generation %1 %2.',
          number,
          shown.state === 'queued' ? stateWords(shown, t) : t('reads its prompts')
        ),
        action: source.cancelGeneration
          ? { label: t('Cancel'), run: () => this._end(shown.generation) }
          : retried
      };
    }
    if (shown.state === 'failed') {
      const words = shown.message || t('Nobody said why.');
      return {
        kind: 'error',
        sentence: t('Generation %1 failed: %2', number, words),
        action: { label: t('Copy this sentence'), run: () => actions.copy(words) },
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

  private get _noteActions(): INoteActions {
    return {
      choose: options => this.pick(options),
      copy: text => void this.actions.copy(text),
      goTo: position => this.env.goTo(this._show(position))
    };
  }

  /** Show the text up to a position, which all views go to; null shows all of it. */
  private _replay(text: IWrittenText | null, position: number | null): void {
    const { generation, sequence } = text ?? {};
    this.env.pinPosition(
      position === null || !generation
        ? null
        : { generation: generation.generation, sequence: sequence ?? 0, position }
    );
    this.pick({ position });
  }

  private _readOf(facts: ITextFacts, text: IWrittenText): ITextRead<IToken> {
    const { color, position: upTo } = this.chosen;
    const looked = this._lookedAt(facts.text);
    // The same colours mean the same in both texts.
    const values = [facts.text, facts.other].flatMap(each =>
      (each?.tokens ?? []).flatMap(token => colorValue(token, color) ?? [])
    );
    const scale = surenessScale(values, color);
    const outlineOf = ({ position }: IToken, dark: boolean): string | null =>
      position === facts.difference
        ? COLORS.categorical[dark ? 'dark' : 'light'][1]
        : position === looked
          ? (dark ? DARK_THEME : LIGHT_THEME).text
          : null;
    return {
      tokens: text.tokens,
      positionOf: ({ position }) => position,
      valueOf: token => colorValue(token, color),
      scaleOf: () => scale,
      legendTitle: color === 'none' ? '' : colorWords(color, this.t),
      looked: text.tokens.findIndex(({ position }) => position === looked),
      isFollowing: upTo === null && looked === newestOf(facts.text),
      isGrowing: isUnderWay(text.generation),
      lookOf: (token, dark) => {
        const isToCome = upTo !== null && token.position > upTo;
        return { isToCome, isUnderlined: token.isPrompt && !isToCome, outline: outlineOf(token, dark) };
      },
      tip: token => this._tip(token)
    };
  }

  /** What the page says above the picture, and a screen reader of it. */
  private _summary(text: IWrittenText, upTo: number | null): string {
    const all = written(text, upTo);
    const [most, lost] = [mostSurprising(all), all.find(isLost)];
    const sentence = tokenWords(plainText(text).slice(0, MOST_SAID));
    return [
      lost ? lostWords(lost, this.t) : '',
      most ? surpriseWords(most, this.t) : '',
      this.t('Text: %1', sentence)
    ]
      .filter(Boolean)
      .join(' ');
  }

  /** Position that is looked at: the pinned or chosen one, else the newest. */
  private _lookedAt(text: IWrittenText | null): number | null {
    return text
      ? (positionShown(this.env, this.chosen.position, {
          generation: text.generation.generation,
          sequence: text.sequence
        }) ?? newestOf(text))
      : null;
  }

  /** Bring a position into sight, and the cursor there. */
  private _show(position: number): IMark | null {
    return this._picture.show(this._picture.indexOf(position));
  }

  private _tip(token: IToken): ITip {
    const tip = tokenTip(token, this.t);
    const tokens = this._picture.tokens.map(({ text }) => text);
    const looks = this._looks(token.position, null).slice(0, TIP_KEYS);
    const lines = looks.map(({ first, last, share }, at) => ({
      name:
        at === 0
          ? this.t('looks most at %1', spanName({ tokens }, first, last))
          : spanName({ tokens }, first, last),
      value: percent(share)
    }));
    return { ...tip, lines: [...tip.lines, ...lines] };
  }

  private _looks(position: number, layer: number | null): readonly IRankedKey[] {
    return this._text ? this._attention.of(this._text, position, layer) : [];
  }

  /** The tokens that one looks at, each as strongly as it does. */
  private _lights(position: number, layer: number | null): IMark[] {
    const keys = this._looks(position, layer);
    const most = keys[0]?.share ?? NaN;
    return this._picture.lit(({ position: at }) => {
      const share = keys.find(({ first, last }) => at >= first && at <= last)?.share ?? 0;
      // By the square root, so that a hundredth of the most is still seen.
      const strength = Math.sqrt(share / most);
      return strength >= LEAST_STRENGTH ? strength : null;
    });
  }

  private readonly _attention = new LookedAt(this.source, () => this.env.place());
  private readonly _picture = new TextPicture<IToken>(this.env, this.t);
  private _text: IWrittenText | null = null;
}

/** The newest position of a text; null where nothing is written. */
const newestOf = (text: IWrittenText | null): number | null => text?.tokens.at(-1)?.position ?? null;

/** The tokens of a text that are written in its replay. */
const written = ({ tokens }: IWrittenText, upTo: number | null): readonly IToken[] =>
  upTo === null ? tokens : tokens.filter(({ position }) => position <= upTo);

/** A text as it is copied: whole characters only. */
const plainText = (text: IWrittenText | null): string => (text?.tokens ?? []).map(each => each.text).join('');

import type { IRecipe, Row, IPlace } from '../../../../charts';
import { COLORS, DARK_THEME, formatNumber, LIGHT_THEME, formatInteger } from '../../../../charts';
import type { TokensOptions } from '../../../../protocol/views.generated';
import type { IRunSource, SourceChange } from '../../../../store/source';
import type { IMark, IMoved, Loaded } from '../../../../views/shared/content';
import { positionShown } from '../../../../views/shared/pinned-step';
import { hold, moveOf, axisParams } from '../../../../views/shared/scale';
import { nothingYet } from '../../../../views/shared/states';
import { tipSaid, type ITip } from '../../../../views/shared/table';
import type { Translate } from '../../../../views/shared/translate';
import { PartModel, type IViewEnvironment } from '../../../../views/shared/view-model';
import type { ICandidate, IToken } from '../../store/generations';
import { CELL } from '../../../../views/kits/text/text-layout';
import { charactersOf, quoted } from '../../../../views/kits/text/token-words';
import { type TextReader, tokenName } from './text-facts';
import type { Which } from './text-pane';
import { isPredicted } from './token-color';

/** Candidates that are drawn. */
const MOST_BARS = 20;
/** Columns of the names of candidates at most, of the longest bar at least, and up to which all are few. */
const NAME = 22;
const LEAST_BAR = 4;
const FEW_COLUMNS = 40;

interface IBar {
  readonly name: string;
  readonly probability: number;
  /** After the filters; NaN where there were none. */
  readonly sampled: number;
  readonly isTaken: boolean;
  /** Tokens that are more probable; -1 where nobody says. */
  readonly rank: number;
}

/** The candidates at a token, and the one that was taken where it is not among them. */
function barsOf(token: IToken): IBar[] {
  const named = ({ text }: ICandidate): string => quoted(text);
  const bars = token.candidates.map((each, rank) => ({
    name: named(each),
    probability: each.probability,
    sampled: each.sampled,
    isTaken: each.id === token.id,
    rank
  }));
  const drawn = bars.slice(0, MOST_BARS);
  if (drawn.some(({ isTaken }) => isTaken)) {
    return drawn;
  }
  const { probability, rank, sampledProbability: sampled } = token;
  return [...drawn, { name: tokenName(token), probability, sampled, isTaken: true, rank }];
}

/** What of the bars does not depend on their colours. */
const barsExtent = (
  bars: readonly IBar[],
  columns: number
): { x: readonly [number, number]; y: readonly [number, number] } => ({
  x: [0, columns],
  y: [-0.5, bars.length - 0.5]
});

/** Draw candidates as bars, most probable first: at temperature 1, and under it after the filters. */
function barsRecipe(bars: readonly IBar[], columns: number, dark: boolean, t: Translate): IRecipe {
  const theme = dark ? DARK_THEME : LIGHT_THEME;
  const [before, after] = COLORS.categorical[dark ? 'dark' : 'light'];
  const digits = columns < FEW_COLUMNS ? 2 : 3;
  const numbers = bars.map(({ probability, sampled }) =>
    Number.isNaN(sampled)
      ? formatNumber(probability, digits)
      : columns < FEW_COLUMNS
        ? formatNumber(sampled, digits)
        : t('%1 → %2', formatNumber(probability, digits), formatNumber(sampled, digits))
  );
  const beside = Math.max(...numbers.map(({ length }) => length)) + 2;
  const room = Math.min(NAME, Math.max(LEAST_BAR, columns - beside - LEAST_BAR));
  const names = bars.map(({ name }) => shortened(name, room));
  const from = Math.max(...names.map(name => charactersOf(name).length)) + 1;
  const space = Math.max(1, columns - from - beside);
  const most = Math.max(
    0.01,
    ...bars.flatMap(each => [each.probability, each.sampled].filter(Number.isFinite))
  );
  const { x, y } = barsExtent(bars, columns);
  const isFiltered = bars.some(({ sampled }) => !Number.isNaN(sampled));
  const bar = (row: number, value: number, top: number, bottom: number, color: string | undefined): Row[] =>
    value > 0 ? [{ x: from, x2: from + (value / most) * space, y: row + top, y2: row + bottom, color }] : [];
  return {
    template: 'tokens',
    texts: { yTitle: t('rank, from 0'), legendTitle: '' },
    params: {
      ...axisParams(x, y),
      rowAt: bars.map((_, row) => row),
      rowText: bars.map(({ rank }) => (rank < 0 ? '' : String(rank))),
      legendLow: 0,
      legendAt: [],
      legendText: []
    },
    datasets: {
      boxes: bars.flatMap(({ probability, sampled }, row) => [
        ...bar(row, probability, -0.4, isFiltered ? -0.02 : 0.4, before),
        ...bar(row, sampled, 0.02, 0.4, after)
      ]),
      lines: [],
      outlines: bars.flatMap(({ isTaken }, row) =>
        isTaken ? [{ x: 0, x2: columns - 0.2, y: row - 0.47, y2: row + 0.47, color: theme.text }] : []
      ),
      texts: bars.flatMap((_, row) => [
        { x: 0.6, y: row, text: (names[row] ?? '').replace(/ /g, '\u00a0'), color: theme.text },
        { x: from + space + 1, y: row, text: numbers[row], color: theme.text }
      ]),
      legend: []
    },
    height: Math.round((y[1] - y[0]) * (CELL.height - 2))
  };
}

/** A name that is too long for its column, cut between two characters. */
function shortened(name: string, room: number): string {
  const characters = charactersOf(name);
  return characters.length < room ? name : `${characters.slice(0, room - 2).join('')}…`;
}

const BESIDE = 60;
const LEAST_COLUMNS = 20;

/** What the token that is looked at could have been. */
export class CandidatesPane extends PartModel<TokensOptions, TextReader> {
  constructor(
    source: IRunSource,
    env: IViewEnvironment,
    reader: TextReader,
    private readonly _which: Which
  ) {
    super(source, env, reader);
  }

  override readonly zooms = { axes: 'x', least: Infinity } as const;

  override get followsPosition(): boolean {
    return true;
  }

  readonly subject = this.t('Candidates');

  concerns(change: SourceChange): boolean {
    return this.reader.concerns(change);
  }

  async load(): Promise<Loaded> {
    const { t } = this;
    const options = this.chosen;
    const facts = await this.reader.facts(options);
    const shown = facts.text;
    const place = shown && { generation: shown.generation.generation, sequence: shown.sequence };
    const position =
      place && (positionShown(this.env, options.position, place) ?? shown.tokens.at(-1)?.position);
    const token = typeof position === 'number' ? await facts[this._which]?.tokenAt(position) : undefined;
    this._bars = token && token.candidates.length > 0 ? barsOf(token) : [];
    if (!token || this._bars.length === 0) {
      return { state: nothingYet(nothing(token, t), this.actions, t) };
    }
    const columns = Math.max(LEAST_COLUMNS, Math.floor((this.env.width - BESIDE) / CELL.width));
    const bars = this._bars;
    this._columns = columns;
    const left = token.candidates.length - MOST_BARS;
    return {
      content: {
        recipe: barsRecipe(bars, columns, this.env.isDark, t),
        printed: (dark = false) => barsRecipe(bars, columns, dark, t),
        extent: barsExtent(bars, columns),
        title: t('Candidates at position %1', formatInteger(token.position)),
        caption: [
          ...(token.isPrompt
            ? [t('Bars: probability at temperature 1.'), t('Outline: the token of the prompt.')]
            : [
                t('Upper bars: probability at temperature 1.'),
                t('Lower bars: after temperature, top-k and top-p, from which the token was drawn.'),
                ...(columns < FEW_COLUMNS ? [t('Numbers: those of the lower bars.')] : []),
                t('Outline: the token that was taken.')
              ]),
          ...(left > 0 ? [t('%1 more candidates are not drawn.', formatInteger(left))] : [])
        ],
        summary: this._summary(token)
      }
    };
  }

  override probe({ y }: IPlace): IMark | null {
    return this._markOf(Math.round(y));
  }

  override tipOf({ y }: IMark): ITip | null {
    const { t } = this;
    const bar = y && this._bars[Math.round((y[0] + y[1]) / 2)];
    return bar
      ? {
          heading: bar.name,
          lines: [
            { name: t('probability'), value: formatNumber(bar.probability, 4) },
            ...(Number.isNaN(bar.sampled)
              ? []
              : [{ name: t('after the filters'), value: formatNumber(bar.sampled, 4) }]),
            ...(bar.rank < 0 ? [] : [{ name: t('rank'), value: formatInteger(bar.rank) }]),
            ...(bar.isTaken ? [{ name: t('taken'), value: t('yes') }] : [])
          ]
        }
      : null;
  }

  override move(key: string): IMoved | null {
    const by = moveOf(key);
    if (by === undefined || this._bars.length === 0) {
      return null;
    }
    this._row = this._row === null ? 0 : hold(this._row + (by[1] || by[0]), this._bars.length);
    const mark = this._markOf(this._row);
    const tip = mark && this.tipOf(mark);
    if (!mark || !tip) {
      return null;
    }
    const sentence = tipSaid(tip);
    return key === 'copy' ? { said: sentence, mark, copy: sentence } : { said: sentence, mark };
  }

  private _markOf(row: number): IMark | null {
    return row in this._bars ? { facet: null, x: [0, this._columns], y: [row - 0.5, row + 0.5] } : null;
  }

  private _summary(token: IToken): string {
    const { t } = this;
    const [first] = token.candidates;
    const name = tokenName(token);
    const probability = formatNumber(token.probability, 3);
    const sentence = token.isPrompt
      ? t('The prompt has %1: probability %2, rank %3.', name, probability, formatInteger(token.rank))
      : t('%1 was taken: probability %2, rank %3.', name, probability, formatInteger(token.rank));
    return token.rank === 0 || !first
      ? sentence
      : t(
          '%1 Most probable was %2, %3.',
          sentence,
          this._bars[0]?.name ?? '',
          formatNumber(first.probability, 3)
        );
  }

  private _bars: readonly IBar[] = [];
  private _columns = 0;
  private _row: number | null = null;
}

/** Why a position has no candidates. */
function nothing(token: IToken | undefined, t: IViewEnvironment['t']): string {
  if (!token) {
    return t('Nothing is written at this position.');
  }
  return isPredicted(token)
    ? t('No candidates were kept: ask with candidates above 0.')
    : t('Nothing predicts the first token of a prompt.');
}

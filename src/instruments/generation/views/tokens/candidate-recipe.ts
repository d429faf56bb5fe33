import { COLORS, DARK_THEME, formatNumber, LIGHT_THEME, type IRecipe, type Row } from '../../../../charts';
import type { ICandidate, IToken } from '../../store/generations';
import { charactersOf, quoted } from '../shared/token-text';
import type { Translate } from '../../../../views/shared/translate';
import { axisParams } from '../../../../views/shared/scale';
import { CELL } from './text-recipe';
import { tokenName } from './token-words';

/** Candidates that are drawn. */
export const MOST_BARS = 20;
/** Columns of the names of candidates at most, and of their numbers. */
const NAME = 22;
const NUMBERS = 22;
const LEAST_BAR = 8;

/** A candidate as a bar. */
export interface IBar {
  readonly name: string;
  readonly probability: number;
  /** After the filters; NaN where there were none. */
  readonly sampled: number;
  readonly isTaken: boolean;
  /** Tokens that are more probable; -1 where nobody says. */
  readonly rank: number;
}

/** The candidates at a token, and the one that was taken where it is not among them. */
export function barsOf(token: IToken): IBar[] {
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
export const barsExtent = (
  bars: readonly IBar[],
  columns: number
): { x: readonly [number, number]; y: readonly [number, number] } => ({
  x: [0, columns],
  y: [-0.5, bars.length - 0.5]
});

/** Draw candidates as bars, most probable first: the probability at temperature 1, and under it that after the filters. */
export function barsRecipe(bars: readonly IBar[], columns: number, dark: boolean, t: Translate): IRecipe {
  const theme = dark ? DARK_THEME : LIGHT_THEME;
  const [before, after] = COLORS.categorical[dark ? 'dark' : 'light'];
  const names = bars.map(({ name }) => shortened(name));
  const from = Math.min(NAME, Math.max(...names.map(name => charactersOf(name).length))) + 1;
  const room = Math.max(LEAST_BAR, columns - from - NUMBERS);
  const most = Math.max(
    0.01,
    ...bars.flatMap(each => [each.probability, each.sampled].filter(Number.isFinite))
  );
  const { x, y } = barsExtent(bars, columns);
  const isFiltered = bars.some(({ sampled }) => !Number.isNaN(sampled));
  const bar = (row: number, value: number, top: number, bottom: number, color: string | undefined): Row[] =>
    value > 0 ? [{ x: from, x2: from + (value / most) * room, y: row + top, y2: row + bottom, color }] : [];
  return {
    template: 'tokens',
    texts: { yTitle: t('rank'), legendTitle: '' },
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
      texts: bars.flatMap(({ probability, sampled }, row) => [
        { x: 0.6, y: row, text: (names[row] ?? '').replace(/ /g, '\u00a0'), color: theme.text },
        {
          x: from + room + 1,
          y: row,
          text: Number.isNaN(sampled)
            ? formatNumber(probability, 3)
            : t('%1 → %2', formatNumber(probability, 3), formatNumber(sampled, 3)),
          color: theme.text
        }
      ]),
      legend: []
    },
    height: Math.round((y[1] - y[0]) * (CELL.height - 2))
  };
}

/** A name that is too long for its column, cut between two characters. */
function shortened(name: string): string {
  const characters = charactersOf(name);
  return characters.length <= NAME - 1 ? name : `${characters.slice(0, NAME - 2).join('')}…`;
}

import { formatInteger } from '../../../../charts';
import { fittedToken, quoted } from './token-text';
import type { Translate } from '../../../../views/shared/translate';
import type { IViewEnvironment } from '../../../../views/shared/view-model';

/** The text of each position that is known, by position. */
export type TokenTexts = ReadonlyMap<number, string>;

/** Pixels that axes and legend take beside a plot, where it was not drawn yet. */
const BESIDE = 150;
/** Pixels of a position: the least at which all are shown, in a window of some, and the most of a label. */
const LABEL = { least: 40, cell: 52, most: 76 };

const MOST_CELLS = 4_000_000;
/** Pixels between two labels, at least. */
const BETWEEN = 50;

/** Labels of an axis of positions, each token over its number, as a Vega expression. */
const TOKEN_LABEL =
  "[labels[datum.value] != null ? labels[datum.value] : '', join(split(format(datum.value, ',d'), ','), '\u2009')]";

/**
 * Where and how the labels of an axis of positions stand: at as many as have space for one, round numbers
 * apart.
 */
export function tokenTicks(width: 'cell_width' | 'width'): {
  readonly xTicks: string;
  readonly xLabel: string;
} {
  const least = `(${BETWEEN} * (x1 - x0) / ${width})`;
  const power = `pow(10, floor(log(max(1, ${least})) / LN10))`;
  const every = `(${least} <= 1 ? 1 : ${least} <= 2 * ${power} ? 2 * ${power} : ${least} <= 5 * ${power} ? 5 * ${power} : 10 * ${power})`;
  return {
    xTicks: `sequence(ceil(x0 / ${every}) * ${every}, floor(x1) + 1, ${every})`,
    xLabel: TOKEN_LABEL
  };
}

/** What is shown of positions along the x axis: all, or a window of those that can be read. */
export interface ITokenWindow {
  readonly x: readonly [number, number];
  /** What is shown until someone zooms; absent where all can be read. */
  readonly home?: readonly [number, number];
  /** What is shown now. */
  readonly shown: readonly [number, number];
  readonly pixels: number;
}

/**
 * Choose what is shown of positions: a window of those that can be read, where not all can.
 * @param at - Position that is looked at; null is the last.
 */
export function tokenWindow(first: number, last: number, at: number | null, env: Shown): ITokenWindow {
  const plot = plotOf(env);
  const most = Math.max(4, Math.floor(plot / LABEL.cell));
  const all = last - first + 1;
  // The newest positions, unless the one that is looked at is not among them.
  const end = at === null || at > last - most ? last : Math.max(first + most - 1, at + (most >> 1));
  const home = all * LABEL.least > plot && all > most ? ([end - most + 0.5, end + 0.5] as const) : undefined;
  return windowOf([first - 0.5, last + 0.5], home, env);
}

/**
 * The first position of a picture of layer × position: of more cells than a picture can have the last ones
 * are drawn.
 * @param positions - Ascending.
 */
export function firstDrawn(positions: readonly number[], layers: number): number {
  const [first = 0, last = 0] = [positions[0], positions.at(-1)];
  return Math.max(first, last + 1 - Math.floor(MOST_CELLS / Math.max(1, layers)));
}

/** All positions, from the first to the last. */
export const tokenSpan = (first: number, last: number, env: Shown): ITokenWindow =>
  windowOf([first - 0.5, last + 0.5], undefined, env);

function windowOf(x: ITokenWindow['x'], home: ITokenWindow['home'], env: Shown): ITokenWindow {
  const { zoom } = env;
  const { x0, x1 } = zoom?.domain ?? { x0: 0, x1: 0 };
  const shown = !zoom || zoom.isHome ? (home ?? x) : zoom.isZoomed ? ([x0, x1] as const) : x;
  return { x, ...(home ? { home } : {}), shown, pixels: plotOf(env) / (shown[1] - shown[0]) };
}

type Shown = Pick<IViewEnvironment, 'frame' | 'width' | 'zoom'>;

const plotOf = ({ frame, width }: Shown): number => frame?.width ?? Math.max(LABEL.cell, width - BESIDE);

/** Labels, by position, of shown positions and as many on either side: the param `labels` of the charts. */
export function tokenLabels(texts: TokenTexts, { shown, pixels }: ITokenWindow): Record<number, string> {
  const around = shown[1] - shown[0];
  const space = Math.min(LABEL.most, Math.max(pixels, LABEL.least) - 4);
  return Object.fromEntries(
    [...texts]
      .filter(([position]) => position > shown[0] - around && position < shown[1] + around)
      .map(([position, text]) => [position, fittedToken(text, space).text])
  );
}

/** Say that not all positions are shown; empty where they are. */
export function windowWords(
  { x, shown }: ITokenWindow,
  { zoom }: Pick<IViewEnvironment, 'zoom'>,
  t: Translate
): string[] {
  const [from, to] = [Math.max(shown[0], x[0]) + 0.5, Math.min(shown[1], x[1]) - 0.5];
  if (from <= x[0] + 0.5 && to >= x[1] - 0.5) {
    return [];
  }
  const numbers = [Math.ceil(from), Math.floor(to), x[0] + 0.5, x[1] - 0.5].map(formatInteger);
  return [
    zoom === null
      ? t('Positions %1 to %2 of %3 to %4 are drawn.', ...numbers)
      : t('Positions %1 to %2 of %3 to %4 are shown: drag, or zoom out, for the others.', ...numbers)
  ];
}

/** Name a position with its token: `position 12, “ of”`. */
export function positionName(position: number, texts: TokenTexts, t: Translate): string {
  const text = texts.get(position);
  return text === undefined
    ? t('position %1', formatInteger(position))
    : t('position %1, %2', formatInteger(position), quoted(text));
}

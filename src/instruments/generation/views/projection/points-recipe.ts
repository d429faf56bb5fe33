import { COLORS, type IRecipe, type Row } from '../../../../charts';
import type { ITextPosition } from '../../../../store/run-link';
import type { IContent } from '../../../../views/shared/content';
import { tokenText } from '../../../../views/shared/describe';
import { axisParams } from '../../../../views/shared/scale';
import type { IProjected } from './projection-reader';
import type { IPointColors, TokenGroup } from './token-group';

/** Pixels of the plot's height where nothing asks for more. */
const HEIGHT = 420;
/** Points up to which each is as large, in square pixels, and as opaque. */
const SIZES: readonly (readonly [most: number, size: number, opacity: number])[] = [
  [400, 46, 0.9],
  [3000, 24, 0.75],
  [Infinity, 12, 0.6]
];
/** Opacity of what is not in the group that is looked at. */
const FAINT = 0.25;
/** Up to so many points each has its name beside it. */
const MOST_NAMES = 24;
const RING = 150;

export interface IPointsRequest {
  readonly colors: IPointColors;
  readonly group: TokenGroup;
  /** Whether a token is looked at. */
  readonly isMarked: (token: ITextPosition) => boolean;
  /** Tokens that the summary names. */
  readonly named: readonly number[];
  readonly titles: { readonly x: string; readonly y: string };
  readonly textOf: (token: number) => string;
}

export function drawnOf({ coordinates, text }: Pick<IProjected, 'coordinates' | 'text'>): number[] {
  return Array.from(text.tokens.keys()).filter(at => !Number.isNaN(coordinates[2 * at] ?? NaN));
}

/** Where a token is drawn. y counts downwards, as in every picture; the axis writes the other sign. */
export function pointOf(
  { coordinates }: Pick<IProjected, 'coordinates'>,
  at: number
): { x: number; y: number } {
  return { x: coordinates[2 * at] ?? NaN, y: -(coordinates[2 * at + 1] ?? NaN) };
}

export function pointsRecipe(
  projected: IProjected,
  { colors, group, isMarked, named, titles, textOf }: IPointsRequest,
  isDark: boolean
): Pick<IContent, 'extent' | 'isSquare'> & { recipe: IRecipe } {
  const { text } = projected;
  const drawn = drawnOf(projected);
  const [, size, opacity] = SIZES.find(([most]) => drawn.length <= most) ?? [0, 12, 0.6];
  const ink = COLORS.ink[isDark ? 'dark' : 'light'];
  const row = (at: number): Row => ({ ...pointOf(projected, at), text: textOf(at) });
  const token = (at: number): ITextPosition | undefined => text.tokens[at];
  const isIn = (at: number): boolean => group.has(token(at) as ITextPosition);
  const marked = drawn.filter(at => isMarked(token(at) as ITextPosition));
  const names = new Set(
    drawn.length <= MOST_NAMES ? drawn : [...named, ...(marked.length < 9 ? marked : [])]
  );
  // Those of the group, and those that are looked at, lie above the others.
  const rank = (at: number): number => (isIn(at) ? 1 : 0);
  const order = group.size === 0 ? drawn : [...drawn].sort((a, b) => rank(a) - rank(b) || a - b);
  const extent = extentOf(drawn.map(at => pointOf(projected, at)));
  return {
    extent,
    isSquare: true,
    recipe: {
      template: 'points',
      texts: { colorTitle: colors.title },
      params: {
        ...axisParams(extent.x, extent.y),
        // Params, not texts: with each layer they say something else, and a text would draw everything anew.
        xName: titles.x,
        yName: titles.y,
        keyColor: ink.muted
      },
      datasets: {
        points: order.map(at => ({
          ...row(at),
          ...colors.looks[at],
          size,
          opacity: group.size === 0 || isIn(at) ? opacity : FAINT
        })),
        rings: marked.map(at => ({ ...pointOf(projected, at), color: ink.strong, size: RING, width: 2 })),
        names: [...names]
          .filter(at => drawn.includes(at))
          .map(at => ({
            ...pointOf(projected, at),
            text: tokenText(text.tokens[at]?.piece ?? ''),
            color: ink.text
          })),
        key: colors.key.map((each, place) => ({ place, ...each }))
      },
      height: HEIGHT
    }
  };
}

/** What points cover, with some air. */
function extentOf(points: readonly { x: number; y: number }[]): IContent['extent'] {
  const span = (values: readonly number[]): readonly [number, number] => {
    const low = values.reduce((least, each) => Math.min(least, each), Infinity);
    const high = values.reduce((most, each) => Math.max(most, each), -Infinity);
    return [low, high];
  };
  const [x, y] = [span(points.map(each => each.x)), span(points.map(each => each.y))];
  const air = 0.05 * Math.max(x[1] - x[0], y[1] - y[0]) || 1;
  return { x: [x[0] - air, x[1] + air], y: [y[0] - air, y[1] + air] };
}

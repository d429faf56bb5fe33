import {
  COLORS,
  contrastColor,
  DARK_THEME,
  formatInteger,
  LIGHT_THEME,
  type ColorScale,
  type IRecipe,
  type Row
} from '../../../../charts';
import type { IToken } from '../../store/generations';
import type { Translate } from '../../../../views/shared/translate';
import { axisParams } from '../../../../views/shared/scale';
import {
  colorValue,
  colorWords,
  stripOf,
  type TokenColor,
  type ITokenBox,
  type ITokenLayout
} from './token-layout';

/** Pixels of a column and of a line of text in the type of the template. */
export const CELL = { width: 7.25, height: 22 } as const;
/** Half the height of a box, in lines. */
const HALF = 0.43;
/** Columns between two boxes. */
const GAP = 0.16;
/** Lines that a picture has at least: of fewer it would be a stripe. */
const LEAST_LINES = 3;
/** Lines by which the picture of a growing text grows: a new height takes longer to draw than new text. */
const GROWTH = 4;

export interface ITextRequest {
  readonly tokens: readonly IToken[];
  readonly layout: ITokenLayout;
  readonly columns: number;
  /** First line, and the one after the last. */
  readonly inSight: readonly [number, number];
  readonly color: TokenColor;
  readonly scale: ColorScale;
  /** Whether it is being written. */
  readonly isGrowing: boolean;
  /** Position that is looked at; null is none. */
  readonly looked: number | null;
  /** Tokens after this position are not written yet in the replay; null where all are. */
  readonly upTo: number | null;
  /** First position that is not as in the text beside. */
  readonly difference: number | null;
}

/** What of a picture does not depend on its colours. */
export function textExtent({
  columns,
  isGrowing,
  inSight: [from, to]
}: Pick<ITextRequest, 'columns' | 'isGrowing' | 'inSight'>): {
  x: readonly [number, number];
  y: readonly [number, number];
} {
  const lines = isGrowing ? Math.ceil((to - from) / GROWTH) * GROWTH : to - from;
  return { x: [0, columns], y: [from - 0.5, from + Math.max(LEAST_LINES, lines) - 0.5] };
}

export const boxSpan = ({ x, x2, line }: ITokenBox): { x: [number, number]; y: [number, number] } => ({
  x: [x, x2 - GAP],
  y: [line - HALF, line + HALF]
});

/** Draw the lines of a text that are in sight, each token in a box of its colour. */
export function textRecipe(request: ITextRequest, dark: boolean, t: Translate): IRecipe {
  const { color, layout, scale, tokens, inSight } = request;
  const boxes = layout.boxes.filter(({ line }) => line >= inSight[0] && line < inSight[1]);
  const drawn = boxes.map(box => boxRows(box, tokens[box.at] as IToken, request, dark));
  const { x, y } = textExtent(request);
  const isUnfinished = tokens.some(token => isLost(colorValue(token, color)));
  const strip = stripOf(scale, isUnfinished, t);
  const first = new Map<number, ITokenBox>();
  boxes.forEach(box => first.set(box.line, first.get(box.line) ?? box));
  return {
    template: 'tokens',
    texts: { yTitle: t('position'), legendTitle: color === 'none' ? '' : colorWords(color, t) },
    params: {
      ...axisParams(x, y),
      rowAt: [...first.keys()],
      rowText: [...first.values()].map(({ at }) => formatInteger(tokens[at]?.position ?? NaN)),
      ...strip.params
    },
    datasets: {
      boxes: drawn.flatMap(rows => rows.box),
      lines: drawn.flatMap(rows => rows.lines),
      outlines: drawn.flatMap(rows => rows.outline),
      texts: drawn.map(rows => rows.text),
      legend: strip.rows
    },
    height: Math.round((y[1] - y[0]) * CELL.height)
  };
}

interface IBoxRows {
  readonly box: Row[];
  readonly lines: Row[];
  readonly outline: Row[];
  readonly text: Row;
}

function boxRows(
  box: ITokenBox,
  token: IToken,
  { color, difference, looked, scale, upTo }: ITextRequest,
  dark: boolean
): IBoxRows {
  const theme = dark ? DARK_THEME : LIGHT_THEME;
  const { x, y } = boxSpan(box);
  const place = { x: x[0], x2: x[1], y: y[0], y2: y[1] };
  const isToCome = upTo !== null && token.position > upTo;
  const value = isToCome ? null : colorValue(token, color);
  const [lost, crossed] = COLORS.nonfinite;
  const fill =
    value === null ? theme.grid : isLost(value) ? lost : scale.colorAt(scale.position(finite(value, scale)));
  const outline =
    token.position === difference
      ? COLORS.categorical[dark ? 'dark' : 'light'][1]
      : token.position === looked
        ? theme.text
        : null;
  return {
    box: isToCome ? [] : [{ ...place, color: fill }],
    lines: [
      ...(isLost(value) ? [{ ...place, color: crossed }] : []),
      ...(token.isPrompt && !isToCome
        ? [{ x: x[0], x2: x[1], y: box.line + HALF + 0.03, y2: box.line + HALF + 0.03, color: theme.muted }]
        : [])
    ],
    outline: outline === null ? [] : [{ ...place, color: outline }],
    text: {
      // White space at its beginning would not be drawn.
      x: box.x + box.text.length - box.text.trimStart().length,
      y: box.line,
      text: box.text.trim(),
      color: isToCome ? theme.muted : value === null ? theme.text : contrastColor(fill)
    }
  };
}

/** Whether the model gave NaN or -infinity; an infinite surprise, of a token held impossible, is valid. */
const isLost = (value: number | null): boolean => value !== null && Number.isNaN(value);

/** A value beyond all others has the colour of the highest. */
const finite = (value: number, { domain }: ColorScale): number =>
  Math.min(domain[1], Math.max(domain[0], value));

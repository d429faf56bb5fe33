import type { ColorScale, Row, IRecipe } from '../../../../charts';
import { COLORS, contrastColor, DARK_THEME, formatInteger, LIGHT_THEME } from '../../../../charts';
import type { TokensOptions } from '../../../../protocol/views.generated';
import { colorStrip, axisParams } from '../../../../views/shared/scale';
import type { Translate } from '../../../../views/shared/translate';
import type { IToken } from '../../store/generations';
import { charactersOf, tokenWords } from '../shared/token-axis';

export type TokenColor = Required<TokensOptions>['color'];

/** What colours in words, with its unit. */
export function colorWords(color: TokenColor, t: Translate): string {
  const words: Readonly<Record<TokenColor, string>> = {
    probability: t('probability'),
    surprise: t('surprise (bits)'),
    entropy: t('entropy (nats)'),
    rank: t('rank, from 0'),
    none: t('nothing')
  };
  return words[color];
}

/** How surprising a token is, bits: -log2 of its probability. */
export const surpriseOf = ({ probability }: Pick<IToken, 'probability'>): number =>
  probability > 0 ? Math.max(0, -Math.log2(probability)) : probability === 0 ? Infinity : NaN;

/** Whether something predicts a token: the first one of a prompt stands alone. */
export const isPredicted = ({ isPrompt, position }: Pick<IToken, 'isPrompt' | 'position'>): boolean =>
  !isPrompt || position > 0;

/** The number that colours a token; null where there is none. */
export function colorValue(token: IToken, color: TokenColor): number | null {
  if (color === 'none' || !isPredicted(token)) {
    return null;
  }
  switch (color) {
    case 'probability':
      return token.probability;
    case 'surprise':
      return surpriseOf(token);
    case 'entropy':
      return token.entropy;
    case 'rank':
      return token.rank < 0 ? NaN : token.rank;
  }
}

/** The strip that says what the colours mean, from left to right; empty where nothing is coloured. */
export function stripOf(
  scale: ColorScale,
  isUnfinished: boolean,
  t: Translate
): { params: Record<string, unknown>; rows: readonly Row[] } {
  if (scale.empty && !isUnfinished) {
    return { params: { legendLow: 0, legendAt: [], legendText: [] }, rows: [] };
  }
  const { params, rows } = colorStrip(scale, false, t);
  if (!isUnfinished) {
    return { params: { ...params }, rows };
  }
  // Beside one another two labels need more room than above one another.
  return {
    params: {
      legendLow: -0.3,
      legendAt: [-0.22, ...params.legendAt],
      legendText: [t('not finite'), ...params.legendText]
    },
    rows: [...rows, { from: -0.3, to: -0.14, color: COLORS.nonfinite[0] }]
  };
}

/** A token, or the part of a long one that stands on one line. */
export interface ITokenBox {
  /** Index of the token among those that are laid out. */
  readonly at: number;
  readonly line: number;
  /** First and last column, the last one excluded. */
  readonly x: number;
  readonly x2: number;
  readonly text: string;
}

/** A text in lines of one width. */
export interface ITokenLayout {
  /** In the order of the text. */
  readonly boxes: readonly ITokenBox[];
  readonly lines: number;
  /** The first box of each token. */
  readonly firstOf: readonly number[];
}

/** What stands for a token whose bytes are no whole character yet. */
const UNFINISHED = '⋯';
/** What stands for a token without any text. */
const NOTHING = '∅';
/** Characters that are twice as wide as a letter: of East Asian scripts, and pictures. */
const WIDE =
  /^[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f1e6}-\u{1f64f}\u{1f680}-\u{1f9ff}\u{1fa70}-\u{1faff}\u{20000}-\u{3fffd}]/u;
/** Letters, figures, signs and spaces of ASCII. */
const PLAIN = /^[ -~]+$/;
/** A space that is drawn: several others would be drawn as one. */
const SPACE = '\u00a0';
/** A token that is bytes only. */
const BYTES = /^(?:<0x[0-9a-fA-F]{2}>)+$/;

/**
 * What a token is drawn as, visible and harmless whatever it holds: what it adds to the text; of a special
 * token, which adds nothing, its name; and a sign where its bytes are no whole character yet.
 */
export function shownText({ text, piece }: Pick<IToken, 'piece' | 'text'>): string {
  return text !== '' ? text : piece === '' ? NOTHING : BYTES.test(piece) ? UNFINISHED : piece;
}

const columnsOf = (character: string): number => (WIDE.test(character) ? 2 : 1);

/**
 * Lay tokens out in lines, as a typewriter would: a token that does not fit on a line begins the next one,
 * and one that is longer than a line is divided. After a line break of the text a new line begins.
 * @param columns - Columns of a line, at least 2.
 */
export function layOut(tokens: readonly Pick<IToken, 'piece' | 'text'>[], columns: number): ITokenLayout {
  const boxes: ITokenBox[] = [];
  const firstOf: number[] = [];
  let [line, x] = [0, 0];
  tokens.forEach((token, at) => {
    firstOf.push(boxes.length);
    const shown = shownText(token);
    if (PLAIN.test(shown) && shown.length <= columns) {
      // Most tokens: nothing of them has to be divided or made visible.
      if (x > 0 && x + shown.length > columns) {
        [line, x] = [line + 1, 0];
      }
      boxes.push({ at, line, x, x2: x + shown.length, text: shown.replace(/ /g, SPACE) });
      x += shown.length;
      return;
    }
    // The break itself is drawn at the end of its line.
    for (const part of shown.split(/(?<=\n)/)) {
      const characters = charactersOf(tokenWords(part).replace(/ /g, SPACE));
      const width = characters.reduce((sum, each) => sum + columnsOf(each), 0);
      if (x > 0 && x + width > columns) {
        [line, x] = [line + 1, 0];
      }
      let [text, from] = ['', x];
      for (const character of characters) {
        if (x > from && x + columnsOf(character) > columns) {
          boxes.push({ at, line, x: from, x2: x, text });
          [line, x, from, text] = [line + 1, 0, 0, ''];
        }
        x += columnsOf(character);
        text += character;
      }
      boxes.push({ at, line, x: from, x2: x, text });
      if (part.endsWith('\n')) {
        [line, x] = [line + 1, 0];
      }
    }
  });
  const last = boxes[boxes.length - 1];
  return { boxes, firstOf, lines: last ? last.line + 1 : 0 };
}

/** The token of the box nearest in column on the line above or below; the same token without such a line. */
export function adjacentToken({ boxes, firstOf, lines }: ITokenLayout, at: number, by: number): number {
  const from = boxes[firstOf[at] ?? -1];
  if (!from) {
    return at;
  }
  const line = Math.min(lines - 1, Math.max(0, from.line + by));
  const distance = ({ x, x2 }: ITokenBox): number => Math.max(x - from.x, from.x - x2 + 1, 0);
  const nearest = boxes
    .filter(each => each.line === line)
    .reduce<ITokenBox | null>((best, each) => (best && distance(best) <= distance(each) ? best : each), null);
  return nearest?.at ?? at;
}

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

import { COLORS, type ColorScale, type Row } from '../../../../charts';
import type { TokensOptions } from '../../../../protocol/views.generated';
import { colorStrip } from '../../../../views/shared/scale';
import type { Translate } from '../../../../views/shared/translate';
import type { IToken } from '../../store/generations';
import { charactersOf, tokenWords } from '../shared/token-text';

export type TokenColor = Required<TokensOptions>['color'];

/** What colours in words, with its unit. */
export function colorWords(color: TokenColor, t: Translate): string {
  const words: Readonly<Record<TokenColor, string>> = {
    probability: t('probability'),
    surprise: t('surprise (bits)'),
    entropy: t('entropy (nats)'),
    rank: t('rank'),
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

import { charactersOf, tokenWords } from './token-words';

/** A token as it is laid out. */
export interface ITextToken {
  /** What it adds to the text; empty where its bytes are no whole character yet. */
  readonly text: string;
  /** What the vocabulary calls it, which is shown where it adds nothing. */
  readonly piece?: string;
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
export function shownText({ text, piece = '' }: ITextToken): string {
  return text !== '' ? text : piece === '' ? NOTHING : BYTES.test(piece) ? UNFINISHED : piece;
}

const columnsOf = (character: string): number => (WIDE.test(character) ? 2 : 1);

/**
 * Lay tokens out in lines, as a typewriter would: a token that does not fit on a line begins the next one,
 * and one that is longer than a line is divided. After a line break of the text a new line begins.
 * @param columns - Columns of a line, at least 2.
 */
export function layOut(tokens: readonly ITextToken[], columns: number): ITokenLayout {
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
export const HALF = 0.43;
/** Columns between two boxes. */
const GAP = 0.16;

export const boxSpan = ({ x, x2, line }: ITokenBox): { x: [number, number]; y: [number, number] } => ({
  x: [x, x2 - GAP],
  y: [line - HALF, line + HALF]
});

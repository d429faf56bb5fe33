import { boundedText } from '../../../../protocol/texts';
import { tokenText } from '../../../../views/shared/describe';

/** Most characters of one token that are shown anywhere. */
const MOST = 200;
/** Marks upon one letter; more would be drawn over what stands above and below. */
const STACKED = /(\p{M}{3})\p{M}+/gu;
/** What has no shape, or turns the text around it. Joiners of letters and of pictures stay. */
const UNSEEN = /(?![\u200c\u200d])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;
/** What a person takes for one character: a letter with marks, joined pictures, both letters of a flag. */
const CHARACTERS = /\p{RI}\p{RI}|[^][\p{M}\u{1f3fb}-\u{1f3ff}]*(?:\u200d[^][\p{M}\u{1f3fb}-\u{1f3ff}]*)*/gu;

/** The characters of a text, as a person counts them. */
export const charactersOf = (text: string): readonly string[] => text.match(CHARACTERS) ?? [];

/** A token in a sentence: on one line, each control character as its picture. Spaces stay. */
export function tokenWords(text: string): string {
  const lone = /^\p{M}/u.test(text) ? '\u25cc' : '';
  return (lone + boundedText(text, MOST))
    .replace(/\n/g, '⏎')
    .replace(/\t/g, '⇥')
    .replace(/\r/g, '␍')
    .replace(/[\u0000-\u001f]/g, letter => String.fromCharCode(0x2400 + letter.charCodeAt(0)))
    .replace(/\u007f/g, '\u2421')
    .replace(UNSEEN, '\ufffd')
    .replace(STACKED, '$1');
}

export const quoted = (text: string): string => `“${tokenWords(text)}”`;

/** A text and about how many pixels it takes in the type of axes and cells. */
export interface IFitted {
  readonly text: string;
  readonly pixels: number;
}

/**
 * A token as it stands in a cell or under an axis, spaces visible, cut between two characters where it has no
 * room.
 */
export function fittedToken(text: string, pixels: number): IFitted {
  const characters = tokenText(tokenWords(text)).match(CHARACTERS) ?? ['∅'];
  const widths = characters.map(widthOf);
  const total = sum(widths);
  if (total <= pixels) {
    return { text: characters.join(''), pixels: total };
  }
  let [retained, taken] = [0, ELLIPSIS];
  while (retained < characters.length - 1 && taken + (widths[retained] ?? 0) <= pixels) {
    taken += widths[retained] ?? 0;
    retained += 1;
  }
  // Of a token at least one character, with or without room for the sign that there are more.
  return retained === 0
    ? { text: characters[0] ?? '', pixels: widths[0] ?? 0 }
    : { text: `${characters.slice(0, retained).join('')}…`, pixels: taken };
}

const ELLIPSIS = 9;

/** About how wide a character is at 11 pixels. */
function widthOf(character: string): number {
  if (/^[iljIft.,:;'`|!()[\]]/.test(character)) {
    return 3.8;
  }
  if (/^[mwMW@%…␣⏎⇥␍\u2400-\u2421\ufffd]/.test(character)) {
    return 9.5;
  }
  if (/^[A-Z]/.test(character)) {
    return 7.6;
  }
  return (character.codePointAt(0) ?? 0) >= 0x1100 ? 12 : 6.5;
}

const sum = (values: readonly number[]): number => values.reduce((total, each) => total + each, 0);

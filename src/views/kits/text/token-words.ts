import { boundedText } from '../../../protocol/texts';

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

import { own } from '../../protocol/records';

/** Turns a text of the views into the user's language; `%1`, `%2` … stand for the arguments. */
export type Translate = (text: string, ...args: (string | number)[]) => string;

/** The same by a bundle of JupyterLab's translator. */
export const translateBy = (words: { __(text: string, ...args: string[]): string }): Translate =>
  remembering((text, ...args) => words.__(text, ...args.map(String)));

/** Keeps texts without arguments: a live picture asks for those of its toolbar several times a second. */
function remembering(said: Translate): Translate {
  const known = new Map<string, string>();
  return (text, ...args) => {
    if (args.length > 0) {
      return said(text, ...args);
    }
    const found = known.get(text) ?? said(text);
    known.set(text, found);
    return found;
  };
}

/** By translations of whole texts; a text without one stays English. */
export const translateFrom =
  (words: Readonly<Record<string, string>>): Translate =>
  (text, ...args) =>
    untranslated(own(words, text) ?? text, ...args);

export const untranslated: Translate = (text, ...args) =>
  text.replace(/%(\d)/g, (match, index: string) => String(args[Number(index) - 1] ?? match));

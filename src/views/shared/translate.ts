/** Turns a text of the views into the user's language; `%1`, `%2` … stand for the arguments. */
export type Translate = (text: string, ...args: (string | number)[]) => string;

/** The same by a bundle of JupyterLab's translator. */
export const translateBy =
  (words: { __(text: string, ...args: string[]): string }): Translate =>
  (text, ...args) =>
    words.__(text, ...args.map(String));

export const untranslated: Translate = (text, ...args) =>
  text.replace(/%(\d)/g, (match, index: string) => String(args[Number(index) - 1] ?? match));

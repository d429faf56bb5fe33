/** Turns a text of the views into the user's language; `%1`, `%2` … stand for the arguments. */
export type Translate = (text: string, ...args: (string | number)[]) => string;

export const untranslated: Translate = (text, ...args) =>
  text.replace(/%(\d)/g, (match, index: string) => String(args[Number(index) - 1] ?? match));

/** Turns a text of the views into the user's language; `%1`, `%2` … stand for the arguments. */
export type Translate = (text: string, ...args: (string | number)[]) => string;

export const untranslated: Translate = (text, ...args) =>
  text.replace(/%(\d)/g, (whole, place: string) => String(args[Number(place) - 1] ?? whole));

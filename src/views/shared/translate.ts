/** Turns a text of the views into the user's language; `%1`, `%2` … stand for the arguments. */
export type Translate = (text: string, ...args: (string | number)[]) => string;

/** The same by a bundle of JupyterLab's translator. */
export function translateBy(words: { __(text: string, ...args: string[]): string }): Translate {
  // A live picture asks for the texts of its toolbar several times a second.
  const known = new Map<string, string>();
  return (text, ...args) => {
    const found = args.length > 0 ? words.__(text, ...args.map(String)) : (known.get(text) ?? words.__(text));
    if (args.length === 0) {
      known.set(text, found);
    }
    return found;
  };
}

export const untranslated: Translate = (text, ...args) =>
  text.replace(/%(\d)/g, (match, index: string) => String(args[Number(index) - 1] ?? match));

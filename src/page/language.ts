import { Gettext, nullTranslator, type ITranslator, type TranslationBundle } from '@jupyterlab/translation';
import { own } from '../protocol/records';

/** A catalogue as in JupyterLab's language packs: translations by text, as many as there are plurals. */
export type Catalogue = Readonly<Record<string, readonly string[] | object>>;

const PLURALS = ['zero', 'one', 'two', 'few', 'many', 'other'] as const;

/**
 * A translator by one catalogue. JupyterLab's own makes a function of the catalogue's formula for plurals,
 * which the page's content security policy forbids; the browser knows the plurals of its languages itself.
 */
export function translatorOf(language: string, catalogue: Catalogue): ITranslator {
  const rules = new Intl.PluralRules(language);
  const { pluralCategories } = rules.resolvedOptions();
  // In the order that formulas of catalogues give them.
  const places = PLURALS.filter(each => pluralCategories.includes(each));
  const formsOf = (text: string): readonly string[] => {
    const found = own(catalogue, text);
    return Array.isArray(found) ? found.filter((each): each is string => typeof each === 'string') : [];
  };
  const one = (text: string, ...args: unknown[]): string => Gettext.strfmt(formsOf(text)[0] || text, ...args);
  const counted = (text: string, plural: string, n: number, ...args: unknown[]): string => {
    const forms = formsOf(text);
    const form = forms[Math.min(places.indexOf(rules.select(n)), forms.length - 1)];
    return Gettext.strfmt(form || (n === 1 ? text : plural), n, ...args);
  };
  // A context, by which nothing here chooses, changes nothing.
  const oneOf = (_context: string, text: string, ...args: unknown[]): string => one(text, ...args);
  const countedOf = (_context: string, ...rest: Parameters<typeof counted>): string => counted(...rest);
  const bundle: TranslationBundle = {
    ...{ __: one, gettext: one, _n: counted, ngettext: counted },
    ...{ _p: oneOf, pgettext: oneOf, _np: countedOf, npgettext: countedOf },
    dcnpgettext: (_domain: string, ...rest: Parameters<typeof countedOf>) => countedOf(...rest)
  };
  return { languageCode: language, load: () => bundle };
}

/** The translator of the page: what the server chose for this browser, or English. */
export async function pageTranslator(
  locale: string,
  ask: (path: string) => Promise<Response>
): Promise<ITranslator> {
  if (locale === '') {
    return nullTranslator;
  }
  try {
    const answer = await ask(`megalens/static/locale/${locale}`);
    return translatorOf(locale.replace('_', '-'), (await answer.json()) as Catalogue);
  } catch {
    // The page works in English.
    return nullTranslator;
  }
}

import type { TranslationBundle } from '@jupyterlab/translation';
import type { IAuthor } from '../summary/control-model';

/** Who and when, such as `by Ada at 14:03:20` or `by you at 14:03:20`; empty where it was not seen from here. */
export function authorText(author: IAuthor | null, trans: TranslationBundle): string {
  if (author === null) {
    return '';
  }
  const who = author.here ? trans.__('you') : author.who === '' ? trans.__('another viewer') : author.who;
  return author.time === null
    ? trans.__('by %1', who)
    : trans.__('by %1 at %2', who, new Date(author.time * 1000).toLocaleTimeString());
}

import { openingCode } from '../views/code';
import { offered } from './runs';
import type { MountView } from './view-host';

/** Mount a view by its name, loading the views on first use. */
export const mountLazily: MountView = async (node, source, options, words, runs) => {
  const { mountView } = await import('../views/registry');
  return mountView(node, source, options, {
    runs: offered(runs),
    // Of the notebook's variables nothing is known here.
    opening: openingCode(source.id, null),
    translate: (text, ...args) => words.__(text, ...args.map(String))
  });
};

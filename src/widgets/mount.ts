import type { MountView } from './view-host';

/** Mount a view by its name, loading the views on first use. */
export const mountLazily: MountView = async (node, source, options, words) => {
  const { mount } = await import('../views/registry');
  return mount(node, source, options, {
    translate: (text, ...args) => words.__(text, ...args.map(String))
  });
};

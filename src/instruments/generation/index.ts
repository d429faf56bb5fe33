import type { IInstrumentSlice } from '../../slice';

/** Texts that a model writes, and what happens inside it meanwhile. */
export const slice: IInstrumentSlice = {
  name: 'generation',
  views: {
    tokens: () => import('./views/tokens'),
    attention: () => import('./views/attention'),
    projection: () => import('./views/projection'),
    lens: () => import('./views/lens'),
    effects: () => import('./views/effects')
  },
  report: async () => (await import('./report')).lookForReport,
  textRows: async () => (await import('./views/shared/text-rows')).openTextRows
};

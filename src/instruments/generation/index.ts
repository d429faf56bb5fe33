import type { IInstrumentSlice } from '../../slice';

/** Texts that a model writes, and what happens inside it meanwhile. */
export const slice: IInstrumentSlice = {
  name: 'generation',
  views: {
    tokens: () => import('./views/tokens/tokens-view'),
    attention: () => import('./views/attention/attention-view'),
    projection: () => import('./views/projection/projection-view'),
    lens: () => import('./views/lens/lens-view'),
    effects: () => import('./views/effects/effects-view')
  },
  tiles: async () => (await import('./tiles')).TILES,
  report: async () => (await import('./tiles')).lookForReport,
  textRows: async () => (await import('./views/shared/text-rows')).openTextRows
};

import type { IInstrumentSlice } from '../../slice';

/** Spans of every rank on one clock, and who makes the others wait. */
export const slice: IInstrumentSlice = {
  name: 'timeline',
  sentences: async () => (await import('./views/verdict-sentences')).VERDICT_SENTENCES,
  views: { timeline: () => import('./views/timeline-view') },
  tiles: async () => (await import('./tiles')).TILES,
  report: async () => (await import('./tiles')).lookForReport
};

// Generated from protocol/views.schema.json by scripts/generate-protocol.mjs. Do not edit: run `npm run generate`.

import type { FullOptionsOf } from '../protocol/view-options';
import type { ViewOptions } from '../protocol/views.generated';
import type { Mount } from './view';

/** The code of each view, loaded when it is first asked for. */
export const LOADERS: { readonly [K in ViewOptions['view']]: () => Promise<Mount<FullOptionsOf<K>>> } = {
  heatmap: async () => (await import('./heatmap')).mountHeatmap,
  trend: async () => (await import('./trend')).mountTrend,
  history: async () => (await import('./history')).mountHistory,
  moments: async () => (await import('./moments')).mountMoments,
  scalars: async () => (await import('./scalars')).mountScalars
};

// Generated from protocol/views.schema.json by scripts/generate-protocol.mjs. Do not edit: run `npm run generate`.

/** The code of each view, loaded when it is first asked for. */
export const LOADERS = {
  heatmap: () => import('./heatmap'),
  trend: () => import('./trend'),
  history: () => import('./history'),
  moments: () => import('./moments'),
  scalars: () => import('./scalars'),
  health: () => import('../instruments/monitor/views/health'),
  timeline: () => import('../instruments/timeline/views/timeline'),
  tokens: () => import('../instruments/generation/views/tokens'),
  attention: () => import('../instruments/generation/views/attention'),
  projection: () => import('../instruments/generation/views/projection'),
  lens: () => import('../instruments/generation/views/lens'),
  effects: () => import('../instruments/generation/views/effects'),
  pipeline: () => import('../instruments/pipeline/views/pipeline'),
  split: () => import('../instruments/pipeline/split/views/split')
} as const;

// Generated from protocol/views.schema.json by scripts/generate-protocol.mjs. Do not edit: run `npm run generate`.

/** The code of each view, loaded when it is first asked for. */
export const LOADERS = {
  heatmap: () => import('./heatmap'),
  trend: () => import('./trend'),
  history: () => import('./history'),
  moments: () => import('./moments'),
  scalars: () => import('./scalars'),
  health: () => import('./health'),
  timeline: () => import('./timeline'),
  tokens: () => import('./tokens'),
  attention: () => import('./attention'),
  projection: () => import('./projection'),
  lens: () => import('./lens'),
  effects: () => import('./effects'),
  pipeline: () => import('./pipeline'),
  split: () => import('./split')
} as const;

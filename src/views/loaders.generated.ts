// Generated from protocol/views.schema.json by scripts/generate-protocol.mjs. Do not edit: run `npm run generate`.

/** The code of each view of the core, loaded when it is first asked for. */
export const LOADERS = {
  heatmap: () => import('./heatmap'),
  trend: () => import('./trend'),
  history: () => import('./history'),
  moments: () => import('./moments'),
  scalars: () => import('./scalars')
} as const;

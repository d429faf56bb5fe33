// Generated from protocol/views.schema.json by scripts/generate-protocol.mjs. Do not edit: run `npm run generate`.

/** The code of each view of the core, loaded when it is first asked for. */
export const LOADERS = {
  overview: () => import('./overview/overview-view'),
  heatmap: () => import('./heatmap/heatmap-view'),
  trend: () => import('./trend/trend-view'),
  history: () => import('./history/history-view'),
  distribution: () => import('./distribution/distribution-view'),
  statistics: () => import('./statistics/statistics-view'),
  scalars: () => import('./scalars/scalars-view')
} as const;

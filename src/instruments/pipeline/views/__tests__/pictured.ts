import { fullRun, type Pictured } from '../../../../views/__tests__/pictured';

/** Every view of pipelines. */
export const PICTURED: Pictured = [
  ['pipeline', { view: 'pipeline', activation_mb: 100, memory_gb: 2 }, 3],
  ['split', { view: 'split', rank_map: 'megafbd' }, 3]
];

export { fullRun as picturedRun };

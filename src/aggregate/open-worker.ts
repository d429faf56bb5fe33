import type { IRollupWorker } from './rollup-queue';

/** Start the rollup worker. Loaded only where there are workers: the builder turns the URL into a file of its own. */
export function openWorker(): IRollupWorker {
  return new Worker(new URL('./rollup-worker.js', import.meta.url), {
    type: 'module'
  }) as unknown as IRollupWorker;
}

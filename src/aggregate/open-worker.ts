import type { IAggregateWorker } from './worker-link';

/**
 * Start the worker. Loaded only where there are workers: the builder turns the URL into a file of its own.
 */
export function openWorker(): IAggregateWorker {
  const worker: unknown = new Worker(new URL('./aggregate-worker.js', import.meta.url), { type: 'module' });
  return worker as IAggregateWorker;
}

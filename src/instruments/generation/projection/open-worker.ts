import type { IAggregateWorker } from '../../../aggregate/worker-link';

/** Start the worker. Loaded only where workers exist: the builder turns the URL into a file of its own. */
export function openWorker(): IAggregateWorker {
  const worker: unknown = new Worker(new URL('./projection-worker.js', import.meta.url), {
    type: 'module'
  });
  return worker as IAggregateWorker;
}

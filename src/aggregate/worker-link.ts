import { AggregateError } from './moment-merge';
import type { Buffers, IWorkerRequest, WorkerReply } from './worker-port';

/** The part of a worker that is used: a browser's, or a Node worker behind the same two handlers. */
export interface IAggregateWorker {
  onmessage: ((event: { data: WorkerReply<never> }) => void) | null;
  onerror: ((event: unknown) => void) | null;
  postMessage(message: unknown, transfer: Buffers): void;
  terminate(): unknown;
}

/** Opens a worker, or answers null where there are none. */
export type WorkerFactory = () => Promise<IAggregateWorker | null>;

/** With more numbers than this a page would feel the pass. */
export const WORKER_ROWS = 100_000;

interface IWaiting<A> {
  /** Does the same work here, or throws where it cannot be done here. */
  readonly inPlace: () => A;
  resolve(answer: A): void;
  reject(error: Error): void;
}

/** A worker that is started when it is first needed, and asked questions of one kind. */
export class WorkerLink<Q, A> {
  constructor(private readonly factory: WorkerFactory) {}

  /** End the worker and reject what waits. */
  dispose(): void {
    this.isDisposed = true;
    void this.worker?.then(worker => worker?.terminate());
    this.worker = null;
    this.settle(entry => entry.reject(closed()));
  }

  /**
   * The worker for work on so many numbers; null where few are worked on, or where there are no workers: that
   * is done here.
   */
  async workerFor(numbers: number): Promise<IAggregateWorker | null> {
    if (this.isDisposed) {
      throw closed();
    }
    if (numbers <= WORKER_ROWS) {
      return null;
    }
    this.worker ??= this.factory().then(
      worker => {
        if (worker !== null) {
          worker.onmessage = event => this.receive(event.data);
          worker.onerror = () => this.fallBack();
        }
        return worker;
      },
      () => null
    );
    return this.worker;
  }

  /**
   * Ask the worker.
   *
   * @param inPlace - What is done should it break.
   */
  ask(worker: IAggregateWorker, question: Q, buffers: Buffers, inPlace: IWaiting<A>['inPlace']): Promise<A> {
    return new Promise((resolve, reject) => {
      this.asked += 1;
      this.waiting.set(this.asked, { inPlace, resolve, reject });
      const request: IWorkerRequest<Q> = { id: this.asked, question };
      worker.postMessage(request, buffers);
    });
  }

  private receive(reply: WorkerReply<A>): void {
    const entry = this.waiting.get(reply.id);
    this.waiting.delete(reply.id);
    if ('error' in reply) {
      entry?.reject(new AggregateError(reply.error, reply.code));
    } else {
      entry?.resolve(reply.answer);
    }
  }

  // A worker that does not start, for example under a strict content policy, must not cost the picture.
  private fallBack(): void {
    this.worker = Promise.resolve(null);
    this.settle(entry => {
      try {
        entry.resolve(entry.inPlace());
      } catch (error) {
        entry.reject(error instanceof Error ? error : new AggregateError(String(error)));
      }
    });
  }

  private settle(each: (entry: IWaiting<A>) => void): void {
    const entries = [...this.waiting.values()];
    this.waiting.clear();
    entries.forEach(each);
  }

  private readonly waiting = new Map<number, IWaiting<A>>();
  private worker: Promise<IAggregateWorker | null> | null = null;
  private asked = 0;
  isDisposed = false;
}

function closed(): AggregateError {
  return new AggregateError('The aggregation was closed. Open the view again.');
}

/** That a worker broke with what it kept. */
export function lost(): AggregateError {
  return new AggregateError('The worker that kept the rows broke. Ask again.', 'lost');
}

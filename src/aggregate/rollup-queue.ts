import { AggregateError } from './aggregate-error';
import { rollup, type IRollup, type IRollupRows } from './rollup';
import type { RollupReply } from './rollup-port';
import type { Statistic } from './statistics';

/** The part of a worker that is used: a browser's, or a Node worker behind the same two handlers. */
export interface IRollupWorker {
  onmessage: ((event: { data: RollupReply }) => void) | null;
  onerror: ((event: unknown) => void) | null;
  postMessage(message: unknown, transfer: ArrayBufferLike[]): void;
  terminate(): unknown;
}

/** Opens a worker, or answers null where there are none. */
export type WorkerFactory = () => Promise<IRollupWorker | null>;

/** With more rows than this the page would feel the pass. */
export const WORKER_ROWS = 100_000;

interface IWaiting {
  readonly rows: IRollupRows;
  readonly statistics: readonly Statistic[];
  resolve(result: IRollup): void;
  reject(error: Error): void;
}

/** Rolls rows up in place when they are few and in a worker when they are many. */
export class RollupQueue {
  /**
   * @param factory - Opens the worker on first use; the browser's own when absent.
   */
  constructor(private readonly factory: WorkerFactory = browserWorker) {}

  /**
   * Group rows by step and layer and take statistics of each group.
   *
   * @param rows - Their columns stay as they are: the worker is given a copy.
   * @throws AggregateError as `rollup`, and when the queue was disposed of.
   */
  async roll(rows: IRollupRows, statistics: readonly Statistic[]): Promise<IRollup> {
    if (this._isDisposed) {
      throw new AggregateError('The aggregation was closed. Open the view again.');
    }
    const worker = rows.value.length > WORKER_ROWS ? await this.open() : null;
    if (worker === null) {
      return rollup(rows, statistics);
    }
    return new Promise((resolve, reject) => {
      this.asked += 1;
      this.waiting.set(this.asked, { rows, statistics, resolve, reject });
      const copy = { step: rows.step.slice(), layer: rows.layer.slice(), value: rows.value.slice() };
      worker.postMessage({ id: this.asked, rows: copy, statistics }, [
        copy.step.buffer,
        copy.layer.buffer,
        copy.value.buffer
      ]);
    });
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  /** End the worker and reject what waits. */
  dispose(): void {
    this._isDisposed = true;
    void this.worker?.then(worker => worker?.terminate());
    this.worker = null;
    this.settle(entry =>
      entry.reject(new AggregateError('The aggregation was closed. Open the view again.'))
    );
  }

  private open(): Promise<IRollupWorker | null> {
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

  private receive(reply: RollupReply): void {
    const entry = this.waiting.get(reply.id);
    this.waiting.delete(reply.id);
    if ('error' in reply) {
      entry?.reject(new AggregateError(reply.error));
    } else {
      entry?.resolve(reply.result);
    }
  }

  // A worker that does not start, for example under a strict content policy, must not cost the picture.
  private fallBack(): void {
    this.worker = Promise.resolve(null);
    this.settle(entry => {
      try {
        entry.resolve(rollup(entry.rows, entry.statistics));
      } catch (error) {
        entry.reject(error instanceof Error ? error : new AggregateError(String(error)));
      }
    });
  }

  private settle(each: (entry: IWaiting) => void): void {
    const entries = [...this.waiting.values()];
    this.waiting.clear();
    entries.forEach(each);
  }

  private readonly waiting = new Map<number, IWaiting>();
  private worker: Promise<IRollupWorker | null> | null = null;
  private asked = 0;
  private _isDisposed = false;
}

async function browserWorker(): Promise<IRollupWorker | null> {
  return typeof Worker === 'undefined' ? null : (await import('./open-worker')).openWorker();
}

import { AggregateError, momentsOf, SUMS, type IMoments, type AggregateErrorCode } from './moment-merge';
import { byName } from '../protocol/records';
import type { TableAnswer, TableQuestion } from './moment-tables';

/** The buffers of a question or an answer, which are handed over instead of copied. */
export type Buffers = ArrayBufferLike[];

export interface IWorkerRequest<Q> {
  readonly id: number;
  readonly question: Q;
}

export type WorkerReply<A> =
  | { readonly id: number; readonly answer: A }
  | { readonly id: number; readonly error: string; readonly code: AggregateErrorCode };

/** The worker's side of the page; its types are not those of a page. */
interface IWorkerScope<Q> {
  onmessage: ((event: { data: IWorkerRequest<Q> }) => void) | null;
  postMessage(message: unknown, transfer: Buffers): void;
}

/** Answer whatever the page asks; with each answer come the buffers that can be handed over. */
export function serve<Q, A>(answer: (question: Q) => readonly [A, Buffers]): void {
  const scope = globalThis as unknown as IWorkerScope<Q>;
  scope.onmessage = ({ data: { id, question } }) => {
    const reply = (message: WorkerReply<A>, buffers: Buffers): void => scope.postMessage(message, buffers);
    try {
      const [result, buffers] = answer(question);
      reply({ id, answer: result }, buffers);
    } catch (error) {
      const code = error instanceof AggregateError ? error.code : 'invalid';
      reply({ id, error: error instanceof Error ? error.message : String(error), code }, []);
    }
  };
}

/** Many tensors in one buffer, so that they can be handed to a worker. */
interface ITensorPack {
  /** The values of all tensors, one after the other. */
  readonly values: Float32Array;
  /** Where each tensor ends in `values`. */
  readonly ends: Uint32Array;
}

export function packTensors(tensors: readonly Float32Array[]): ITensorPack {
  const ends = new Uint32Array(tensors.length);
  let length = 0;
  tensors.forEach((tensor, index) => {
    length += tensor.length;
    ends[index] = length;
  });
  const values = new Float32Array(length);
  tensors.forEach((tensor, index) => values.set(tensor, (ends[index] ?? 0) - tensor.length));
  return { values, ends };
}

export function packedMoments({ values, ends }: ITensorPack): Float64Array {
  const packed = new Float64Array(ends.length * SUMS.length);
  ends.forEach((end, index) => {
    const sums = momentsOf(values.subarray(ends[index - 1] ?? 0, end));
    SUMS.forEach((name, column) => (packed[index * SUMS.length + column] = sums[name]));
  });
  return packed;
}

export function unpackMoments(packed: Float64Array, index: number): IMoments {
  return byName(SUMS, name => packed[index * SUMS.length + SUMS.indexOf(name)] ?? Number.NaN);
}

export type WorkerQuestion =
  | { readonly kind: 'moments'; readonly pack: ITensorPack }
  | { readonly kind: 'tables'; readonly question: TableQuestion };

/** What it answers: packed sums of each tensor, or what its tables say. */
export type WorkerAnswer =
  | { readonly kind: 'moments'; readonly packed: Float64Array }
  | { readonly kind: 'tables'; readonly answer: TableAnswer };

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

import { AggregateError } from './aggregate-error';
import { MomentTables, type TableAnswer, type TableQuestion } from './moment-tables';
import { isKnown, momentsOf, remember } from './moments';
import { packTensors, packedMoments, unpackMoments } from './moments-pack';
import type {
  ProjectionAnswer,
  ProjectionQuestion,
  Projections
} from '../instruments/generation/aggregate/projection/projections';
import type { Buffers, WorkerAnswer, WorkerQuestion, WorkerReply } from './worker-port';

/** The part of a worker that is used: a browser's, or a Node worker behind the same two handlers. */
export interface IAggregateWorker {
  onmessage: ((event: { data: WorkerReply }) => void) | null;
  onerror: ((event: unknown) => void) | null;
  postMessage(message: unknown, transfer: Buffers): void;
  terminate(): unknown;
}

/** Opens a worker, or answers null where there are none. */
export type WorkerFactory = () => Promise<IAggregateWorker | null>;

/** With more numbers than this a page would feel the pass. */
export const WORKER_ROWS = 100_000;

// Bounds the copy that is on its way.
const PACK_VALUES = 8 << 20;

/** Where what is kept between questions is. */
export type TablePlace = 'here' | 'worker';

interface IWaiting {
  /** Does the same work here, or throws where it cannot be done here. */
  readonly inPlace: () => WorkerAnswer;
  resolve(answer: WorkerAnswer): void;
  reject(error: Error): void;
}

/** Does small work in place and large work in a worker. */
export class WorkQueue {
  /**
   * @param factory - Opens the worker on first use; the browser's own when absent.
   */
  constructor(private readonly factory: WorkerFactory = browserWorker) {}

  /**
   * Sum tensors up, so that `momentsOf` knows them; those that it knows already cost nothing.
   *
   * @param tensors - Values of kept tensors.
   */
  async learn(tensors: readonly Float32Array[]): Promise<void> {
    const unknown = tensors.filter(values => !isKnown(values));
    const worker = await this.workerFor(unknown.reduce((sum, values) => sum + values.length, 0));
    if (worker === null) {
      unknown.forEach(momentsOf);
      return;
    }
    for (let first = 0; first < unknown.length;) {
      let size = 0;
      let end = first;
      while (end < unknown.length && (end === first || size + (unknown[end]?.length ?? 0) <= PACK_VALUES)) {
        size += unknown[end]?.length ?? 0;
        end += 1;
      }
      const part = unknown.slice(first, end);
      const pack = packTensors(part);
      const buffers = [pack.values.buffer, pack.ends.buffer];
      const answer = await this.ask(worker, { kind: 'moments', pack }, buffers, () => ({
        kind: 'moments',
        packed: packedMoments(packTensors(part))
      }));
      if (answer.kind === 'moments') {
        part.forEach((values, index) => remember(values, unpackMoments(answer.packed, index)));
      }
      first = end;
    }
  }

  /**
   * Where tables of many rows are kept, or so many numbers are worked on: in the worker where there is one.
   *
   * @param numbers - Few are worked on here in any case.
   */
  async placeOf(numbers = Infinity): Promise<TablePlace> {
    return (await this.workerFor(numbers)) === null ? 'here' : 'worker';
  }

  /**
   * Ask the tables of moments, here or in the worker.
   *
   * @param place - As `placeOf` said when the tables were loaded.
   * @param buffers - Memory that the worker takes over.
   * @throws AggregateError as `MomentTables`; `lost` when the worker that kept the tables broke.
   */
  async askTables(place: TablePlace, question: TableQuestion, buffers: Buffers): Promise<TableAnswer> {
    if (place === 'here') {
      return this.here.ask(question);
    }
    const worker = await this.workerFor(Infinity);
    if (worker === null) {
      throw lost();
    }
    const answer = await this.ask(worker, { kind: 'tables', question }, buffers, () => {
      throw lost();
    });
    if (answer.kind !== 'tables') {
      throw lost();
    }
    return answer.answer;
  }

  /**
   * Have points projected, here or in the worker. What does it here is loaded when it is first needed.
   *
   * @param place - As `placeOf` said; of one job always the same.
   * @param buffers - Memory that the worker takes over.
   * @throws AggregateError as `Projections`; `lost` when the worker broke.
   */
  async askProjection(
    place: TablePlace,
    question: ProjectionQuestion,
    buffers: Buffers
  ): Promise<ProjectionAnswer> {
    const worker = place === 'here' ? null : await this.workerFor(Infinity);
    if (worker === null) {
      this.projections ??= import('../instruments/generation/aggregate/projection/projections').then(
        code => new code.Projections()
      );
      return (await this.projections).ask(question);
    }
    const answer = await this.ask(worker, { kind: 'points', question }, buffers, () => {
      throw lost();
    });
    if (answer.kind !== 'points') {
      throw lost();
    }
    return answer.answer;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  /** End the worker and reject what waits. */
  dispose(): void {
    this._isDisposed = true;
    void this.worker?.then(worker => worker?.terminate());
    this.worker = null;
    this.settle(entry => entry.reject(closed()));
  }

  private async workerFor(numbers: number): Promise<IAggregateWorker | null> {
    if (this._isDisposed) {
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

  private ask(
    worker: IAggregateWorker,
    question: WorkerQuestion,
    buffers: Buffers,
    inPlace: IWaiting['inPlace']
  ): Promise<WorkerAnswer> {
    return new Promise((resolve, reject) => {
      this.asked += 1;
      this.waiting.set(this.asked, { inPlace, resolve, reject });
      worker.postMessage({ ...question, id: this.asked }, buffers);
    });
  }

  private receive(reply: WorkerReply): void {
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

  private settle(each: (entry: IWaiting) => void): void {
    const entries = [...this.waiting.values()];
    this.waiting.clear();
    entries.forEach(each);
  }

  private readonly here = new MomentTables();
  private projections: Promise<Projections> | null = null;
  private readonly waiting = new Map<number, IWaiting>();
  private worker: Promise<IAggregateWorker | null> | null = null;
  private asked = 0;
  private _isDisposed = false;
}

function closed(): AggregateError {
  return new AggregateError('The aggregation was closed. Open the view again.');
}

function lost(): AggregateError {
  return new AggregateError('The worker that kept the rows broke. Ask again.', 'lost');
}

async function browserWorker(): Promise<IAggregateWorker | null> {
  return typeof Worker === 'undefined' ? null : (await import('./open-worker')).openWorker();
}

/** The queue that a page shares. */
export const pageQueue = new WorkQueue();

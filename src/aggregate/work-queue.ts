import { MomentTables, type TableAnswer, type TableQuestion } from './moment-tables';
import { isKnown, momentsOf, remember } from './moment-merge';
import type { IAggregateWorker, WorkerFactory, WorkerAnswer, WorkerQuestion, Buffers } from './worker-link';
import { lost, WorkerLink, packTensors, packedMoments, unpackMoments } from './worker-link';

// Bounds the copy that is on its way.
const PACK_VALUES = 8 << 20;

/** Where what is kept between questions is. */
export type TablePlace = 'here' | 'worker';

/** Does small work in place and large work in a worker. */
export class WorkQueue {
  constructor(factory: WorkerFactory = browserWorker) {
    this.link = new WorkerLink(factory);
  }

  /** Sum tensors up for `momentsOf`; those that it knows already cost nothing. */
  async learn(tensors: readonly Float32Array[]): Promise<void> {
    const unknown = tensors.filter(values => !isKnown(values));
    const worker = await this.link.workerFor(unknown.reduce((sum, values) => sum + values.length, 0));
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
      const answer = await this.link.ask(worker, { kind: 'moments', pack }, buffers, () => ({
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
   * Where tables of many rows, or so many numbers, are worked on: in the worker where there is one, few of
   * them here.
   */
  async placeOf(numbers = Infinity): Promise<TablePlace> {
    return (await this.link.workerFor(numbers)) === null ? 'here' : 'worker';
  }

  /**
   * Ask the tables of moments, here or in the worker.
   *
   * @throws AggregateError as `MomentTables`; `lost` when the worker that kept the tables broke.
   */
  async askTables(place: TablePlace, question: TableQuestion, buffers: Buffers): Promise<TableAnswer> {
    if (place === 'here') {
      return this.here.ask(question);
    }
    const worker = await this.link.workerFor(Infinity);
    if (worker === null) {
      throw lost();
    }
    const answer = await this.link.ask(worker, { kind: 'tables', question }, buffers, () => {
      throw lost();
    });
    if (answer.kind !== 'tables') {
      throw lost();
    }
    return answer.answer;
  }

  get isDisposed(): boolean {
    return this.link.isDisposed;
  }

  /** End the worker and reject what waits. */
  dispose(): void {
    this.link.dispose();
  }

  private readonly link: WorkerLink<WorkerQuestion, WorkerAnswer>;
  private readonly here = new MomentTables();
}

async function browserWorker(): Promise<IAggregateWorker | null> {
  return typeof Worker === 'undefined' ? null : (await import('./open-worker')).openWorker();
}

export const pageQueue = new WorkQueue();

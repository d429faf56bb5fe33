import type { TablePlace } from '../../../../aggregate/work-queue';
import {
  lost,
  WorkerLink,
  type IAggregateWorker,
  type WorkerFactory
} from '../../../../aggregate/worker-link';
import type { Buffers } from '../../../../aggregate/worker-port';
import type { ProjectionAnswer, ProjectionQuestion, Projections } from './projections';

/** Has few points projected in place and many in a worker. */
export class ProjectionQueue {
  /**
   * @param factory - Opens the worker on first use; the browser's own when absent.
   */
  constructor(factory: WorkerFactory = browserWorker) {
    this.link = new WorkerLink(factory);
  }

  /**
   * Where so many numbers are worked on: in the worker where there is one.
   *
   * @param numbers - Few are worked on here in any case.
   */
  async placeOf(numbers = Infinity): Promise<TablePlace> {
    return (await this.link.workerFor(numbers)) === null ? 'here' : 'worker';
  }

  /**
   * Have points projected, here or in the worker. What does it here is loaded when it is first needed.
   *
   * @param place - As `placeOf` said; of one job always the same.
   * @param buffers - Memory that the worker takes over.
   * @throws AggregateError as `Projections`; `lost` when the worker broke.
   */
  async ask(place: TablePlace, question: ProjectionQuestion, buffers: Buffers): Promise<ProjectionAnswer> {
    const worker = place === 'here' ? null : await this.link.workerFor(Infinity);
    if (worker === null) {
      this.projections ??= import('./projections').then(code => new code.Projections());
      return (await this.projections).ask(question);
    }
    return this.link.ask(worker, question, buffers, () => {
      throw lost();
    });
  }

  get isDisposed(): boolean {
    return this.link.isDisposed;
  }

  /** End the worker and reject what waits. */
  dispose(): void {
    this.link.dispose();
  }

  private readonly link: WorkerLink<ProjectionQuestion, ProjectionAnswer>;
  private projections: Promise<Projections> | null = null;
}

async function browserWorker(): Promise<IAggregateWorker | null> {
  return typeof Worker === 'undefined' ? null : (await import('./open-worker')).openWorker();
}

/** The queue that a page shares. */
export const pageProjections = new ProjectionQueue();

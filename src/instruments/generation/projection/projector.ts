import { AggregateError } from '../../../aggregate/moment-merge';
import type { TablePlace } from '../../../aggregate/work-queue';
import type { IAggregateWorker, WorkerFactory, Buffers } from '../../../aggregate/worker-link';
import { lost, WorkerLink } from '../../../aggregate/worker-link';
import type { IUmapState, IUmapSettings } from './umap';
import type { IVectors } from './features';
import type { IPrincipal } from './principal-components';
import type { ProjectionAnswer, ProjectionQuestion, Projections } from './projections';

/** Has few points projected in place and many in a worker. */
export class ProjectionQueue {
  /** @param factory - Opens the worker on first use; the browser's own when absent. */
  constructor(factory: WorkerFactory = browserWorker) {
    this.link = new WorkerLink(factory);
  }

  /** Where so many numbers are worked on: in the worker where there is one. */
  async placeOf(numbers = Infinity): Promise<TablePlace> {
    return (await this.link.workerFor(numbers)) === null ? 'here' : 'worker';
  }

  /**
   * Have points projected, here or in the worker. What does it here is loaded when it is first needed.
   * @param place - As `placeOf` said; of one job always the same.
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

  dispose(): void {
    this.link.dispose();
  }

  private readonly link: WorkerLink<ProjectionQuestion, ProjectionAnswer>;
  private projections: Promise<Projections> | null = null;
}

async function browserWorker(): Promise<IAggregateWorker | null> {
  return typeof Worker === 'undefined' ? null : (await import('./open-worker')).openWorker();
}

const pageProjections = new ProjectionQueue();

/** How many times the progress of UMAP is reported. */
const MARKS = 20;

let jobs = 0;

/** Has points projected: many in the page's worker, few in place. */
export class Projector {
  constructor(private readonly queue: ProjectionQueue = pageProjections) {}

  /**
   * Principal components; see `principalComponents`.
   * @param gather - Gives the points, whose memory may go to the worker; called a second time if it breaks.
   */
  async components(gather: () => IVectors, components: number, standardise: boolean): Promise<IPrincipal> {
    const ask = async (): Promise<ProjectionAnswer> => {
      const points = gather();
      const place = await this.queue.placeOf(points.values.length);
      return this.queue.ask(place, { kind: 'components', points, components, standardise }, [
        points.values.buffer
      ]);
    };
    const answer = await ask().catch((reason: unknown) => {
      if (reason instanceof AggregateError && reason.code === 'lost') {
        return ask();
      }
      throw reason;
    });
    if (answer.kind !== 'components') {
      throw new AggregateError('Expected principal components, and another answer came.');
    }
    return answer.principal;
  }

  /** Begin to lay points out with UMAP; see `Umap`. */
  umap(points: IVectors, start: Float64Array, request: IUmapSettings): UmapRun {
    return new UmapRun(this.queue, points, start, request);
  }
}

/** UMAP under way. It goes on by itself from its making until it is done or let go of. */
export class UmapRun {
  constructor(
    private readonly queue: ProjectionQueue,
    private readonly points: IVectors,
    private readonly start: Float64Array,
    private readonly request: IUmapSettings
  ) {
    jobs += 1;
    this.job = jobs;
    void this.goOn();
  }

  /** Null before the first answer. */
  state: IUmapState | null = null;

  get isDone(): boolean {
    return this.state !== null && this.state.done >= this.state.total;
  }

  get isStopped(): boolean {
    return this._isStopped;
  }

  /** Resolves when a twentieth more of the work is done, or nothing more will be. Rejects when it failed. */
  async next(): Promise<void> {
    if (!this.isDone && !this._isStopped && this.failure === null) {
      await new Promise<void>(done => this.waiting.push(done));
    }
    if (this.failure !== null) {
      throw this.failure;
    }
  }

  /** Do no more; `state` stays as it is. Safe twice. */
  stop(): void {
    this._isStopped = true;
    this.tell();
  }

  private async goOn(): Promise<void> {
    try {
      while (!this.isDone && !this._isStopped) {
        await this.advance();
        const { done = 0, total = 1 } = this.state ?? {};
        if (this.isDone || done - this.reported >= total / MARKS) {
          this.reported = done;
          this.tell();
        }
        // Whoever else waits in this thread has a turn.
        await new Promise<void>(turn => setTimeout(turn));
      }
    } catch (reason) {
      this.failure = reason instanceof Error ? reason : new AggregateError(String(reason));
      this.tell();
    }
    this.drop();
  }

  private async advance(): Promise<void> {
    try {
      if (this.place === null) {
        this.place = await this.queue.placeOf(this.points.values.length);
        const points = { ...this.points, values: this.points.values.slice() };
        const { job, start, request } = this;
        await this.ask({ kind: 'begin', job, points, start, request }, [points.values.buffer]);
      }
      await this.ask({ kind: 'advance', job: this.job }, []);
    } catch (reason) {
      if (!(reason instanceof AggregateError && reason.code === 'lost') || this.isAgain) {
        throw reason;
      }
      // Once more from the beginning, where there is no worker that can break.
      this.isAgain = true;
      this.place = null;
    }
  }

  private async ask(question: ProjectionQuestion, buffers: ArrayBufferLike[]): Promise<void> {
    const answer = await this.queue.ask(this.place ?? 'here', question, buffers);
    if (answer.kind === 'umap') {
      this.state = answer.state;
    }
  }

  /** What is done of it need not be kept any more. */
  private drop(): void {
    if (this.place !== null && !this.isDone && !this.queue.isDisposed) {
      this.queue.ask(this.place, { kind: 'drop', job: this.job }, []).catch(() => undefined);
    }
  }

  private tell(): void {
    this.waiting.splice(0).forEach(done => done());
  }

  private readonly job: number;
  private place: TablePlace | null = null;
  private isAgain = false;
  private reported = 0;
  private failure: Error | null = null;
  private _isStopped = false;
  private readonly waiting: (() => void)[] = [];
}

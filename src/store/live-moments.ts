import type { StreamTable } from '../protocol/frame-table';
import type { MomentGroupsRequest, MomentRowsRequest } from '../protocol/requests.generated';
import type { IReadBy } from '../client/run-reader';
import type {
  IMomentGroups,
  IMomentIndex,
  IMomentRows,
  IMomentSource,
  ReadingProgress,
  TasksProgress
} from './row-moments';
import type { MomentStore } from './moment-store';
import type { ServerMoments } from './server-moments';
import { StoreError } from './source';

/** A page under load is not made to read everything again more often, ms. */
const REFILL_MS = 10_000;
/** More rows than this are brought here after the first picture, which the server answers then. */
const MANY_ROWS = 150_000;
/** The first questions are answered before rows are brought, ms. */
const BRING_MS = 3000;

/**
 * The statistics of a run that is going on: what its hub sends, behind what the recording has from before
 * this page joined.
 *
 * What is too much for the page's memory is left to the recording, from which the server answers.
 */
export class LiveMoments implements IMomentSource {
  /** @param recording - The recording as the server reads it; null where nobody can. */
  constructor(
    private readonly store: MomentStore,
    private readonly recording: ServerMoments | null
  ) {
    this.recorded = recording !== null;
  }

  /** Rows that are brought to a table at once: none while those of the recording are still being loaded. */
  get limitRows(): number {
    return this.bringing === null ? Infinity : 0;
  }

  get bytes(): number {
    return this.store.bytes;
  }

  /**
   * Add the rows of a frame.
   * @param table - Rows of the stream `moments`.
   * @returns First and last step, or null when nothing was new.
   */
  append(table: StreamTable, step: number, mayRepeat: boolean): [number, number] | null {
    // What was under way while the recording was read may be in both.
    const twice = step <= this.readTo;
    this.readTo = twice ? this.readTo : -Infinity;
    return this.store.append(table, mayRepeat || twice);
  }

  async index(signal?: AbortSignal, onProgress?: ReadingProgress): Promise<IMomentIndex> {
    await this.fill(signal, onProgress);
    if (this.bringing !== null && this.read !== null) {
      // Every question asks for it: the first picture shall not wait for the same answer again.
      return this.read;
    }
    if (this.isPartial && this.recording !== null) {
      return this.recording.latest(signal);
    }
    const index = this.store.index();
    return this.trouble === '' ? index : { ...index, warnings: [...index.warnings, this.trouble] };
  }

  async rows(request: MomentRowsRequest, signal?: AbortSignal): Promise<IMomentRows | null> {
    await this.fill(signal);
    if (this.isPartial && this.recording !== null) {
      return this.recording.rows(request, signal);
    }
    return this.store.rows(request);
  }

  async groups(request: MomentGroupsRequest, signal?: AbortSignal): Promise<IMomentGroups> {
    if (this.recording === null || !this.recorded) {
      throw new StoreError(
        'unavailable',
        'This run is not recorded, so the server has nothing to answer from. Choose fewer tensors or steps, or record the run.'
      );
    }
    return this.recording.groups(request, signal);
  }

  get readBy(): IReadBy | null {
    return this.recording?.readBy ?? null;
  }

  watchTasks(told: TasksProgress): () => void {
    return this.recording?.watchTasks(told) ?? (() => undefined);
  }

  /** Frames were lost: rows may be missing from here, and are read again from the recording. */
  lose(): void {
    this.hasHoles = true;
  }

  clear(): void {
    this.store.clear();
    this.isFull = false;
    this.tooMany = false;
    this.readTo = -Infinity;
    this.hasHoles = false;
  }

  dispose(): void {
    this.isDisposed = true;
    this.store.clear();
    this.recording?.dispose();
  }

  /** Whether what is here lacks something that the recording has. */
  private get isPartial(): boolean {
    return this.recorded && (this.tooMany || this.store.thinned > 0 || this.bringing !== null);
  }

  private async fill(signal?: AbortSignal, onProgress?: ReadingProgress): Promise<void> {
    if (this.recording === null || !this.recorded) {
      return;
    }
    if (this.hasHoles && this.isFull && Date.now() - this.filledAt > REFILL_MS) {
      this.clear();
    }
    if (this.isFull || this.bringing !== null) {
      return;
    }
    this.filling ??= this.load(this.recording, onProgress).finally(() => (this.filling = null));
    await this.filling;
    signal?.throwIfAborted();
  }

  /** Bring in what the recording has from before the first row that is here. */
  private async load(recording: ServerMoments, onProgress?: ReadingProgress): Promise<void> {
    try {
      this.read = await recording.latest(undefined, onProgress);
      const { stats } = this.read;
      if (stats.reduce((sum, { rows }) => sum + rows, 0) > MANY_ROWS) {
        // Until they are here the server answers: a picture comes before they would.
        this.bringing ??= this.later(recording, stats);
        return;
      }
      await this.bring(recording, stats);
    } catch (error) {
      this.failed(error);
    }
  }

  private async later(recording: ServerMoments, stats: IMomentIndex['stats']): Promise<void> {
    try {
      await new Promise(done => setTimeout(done, BRING_MS));
      if (!this.isDisposed) {
        await this.bring(recording, stats);
      }
    } catch (error) {
      if (!this.isDisposed) {
        this.failed(error);
      }
    } finally {
      this.bringing = null;
    }
  }

  private async bring(recording: ServerMoments, stats: IMomentIndex['stats']): Promise<void> {
    for (const { stat } of stats) {
      // The hub may have given up one frame of the first step and kept another.
      const first = this.store.index().stats.find(entry => entry.stat === stat)?.first ?? Infinity;
      const rows = await recording.rows({
        stats: [stat],
        ...(first === Infinity ? {} : { steps: [0, first] })
      });
      if (rows === null) {
        this.tooMany = true;
        continue;
      }
      this.store.prepend(rows);
      this.readTo = Math.max(this.readTo, rows.step[rows.step.length - 1] ?? -Infinity);
    }
    this.isFull = true;
    this.filledAt = Date.now();
    this.trouble = '';
  }

  private failed(error: unknown): void {
    if (!(error instanceof StoreError) || error.code === 'disposed') {
      throw error;
    }
    // A run that is not recorded has nothing else than what came here.
    this.recorded = error.code !== 'gone';
    this.trouble = this.recorded ? `What came before this page was opened is not here: ${error.message}` : '';
  }

  private filling: Promise<void> | null = null;
  private bringing: Promise<void> | null = null;
  /** The recording's index when rows were last brought from it. */
  private read: IMomentIndex | null = null;
  private isDisposed = false;
  private isFull = false;
  private hasHoles = false;
  private filledAt = -Infinity;
  private tooMany = false;
  private recorded: boolean;
  private readTo = -Infinity;
  private trouble = '';
}

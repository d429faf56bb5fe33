import { groupMoments } from '../../aggregate';
import type {
  IMomentGroups,
  IMomentIndex,
  IMomentQuery,
  IMomentSource,
  ReadingProgress
} from '../../store/moment-source';
import type { IOtherRun } from '../shared/lines/other-runs';

/** A run of a comparison with what reads it; null where it has no statistics, or could not be opened. */
export interface IMomentRun extends IOtherRun {
  readonly reader: MomentReader | null;
}

/** Answers that are kept: those of one picture and its last few places. */
const MOST_KEPT = 24;

/**
 * Asks one run for groups and keeps the last answers, so that zooming, hovering and a new theme ask nothing twice. What is kept is
 * forgotten when the run has more.
 */
export class MomentReader {
  constructor(readonly source: IMomentSource) {}

  /** What the answers are of. */
  get version(): string {
    return this._version ?? '';
  }

  /**
   * What there is, as of now.
   *
   * @param told - Hears how far the source is where it reads files first.
   */
  async index(signal?: AbortSignal, told?: ReadingProgress): Promise<IMomentIndex> {
    const index = await this.source.index(signal, told);
    if (index.version !== this._version) {
      this._version = index.version;
      this._kept.clear();
    }
    return index;
  }

  /** Groups as of the last `index`. A question that fails is asked anew. */
  groups(query: IMomentQuery, signal?: AbortSignal): Promise<IMomentGroups> {
    const key = JSON.stringify(query);
    const kept = this._kept.get(key);
    if (kept) {
      return kept;
    }
    const asked = groupMoments(this.source, query, signal);
    asked.catch(() => this._kept.get(key) === asked && this._kept.delete(key));
    this._kept.set(key, asked);
    for (const old of this._kept.keys()) {
      if (this._kept.size <= MOST_KEPT) {
        break;
      }
      this._kept.delete(old);
    }
    return asked;
  }

  /** Add a reader to another run. Views of one run share it. */
  static of(run: IOtherRun): IMomentRun {
    const moments = run.source?.moments;
    if (!moments) {
      return { ...run, reader: null };
    }
    const reader = READERS.get(moments) ?? new MomentReader(moments);
    READERS.set(moments, reader);
    return { ...run, reader };
  }

  private _version: string | null = null;
  private readonly _kept = new Map<string, Promise<IMomentGroups>>();
}

const READERS = new WeakMap<IMomentSource, MomentReader>();

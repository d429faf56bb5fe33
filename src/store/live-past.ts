import type { ITensorIndex } from '../client/run-reader';
import type { Status } from '../protocol/messages.generated';
import type { ITrendAnswer } from './line-data';
import type { IMissingSteps, ITensorQuery, ITensorResult, ITensorRow, ITensorShape } from './tensor-data';
import { compareRows } from './tensor-data';
import { type RecordingRows, ascending } from './recording';
import { StoreError, type SourceChange } from './source';
import type { TrendRequest } from '../protocol/requests.generated';
import type { IDisposable } from '@lumino/disposable';
import { own } from '../protocol/records';
import type { IStreamInfo } from '../protocol/streams';
import type { IStreamRows, RowColumn } from './row-store';

/** Longest that changes wait for others, ms: in a page that is looked at, and elsewhere. */
const [SEEN_MS, UNSEEN_MS] = [16, 50];

/** The page as far as the gate cares; nothing of it is there in Node. */
interface IPage {
  document?: { visibilityState: string };
}

/**
 * Gathers changes of rows and passes them on at most every 16 ms, or every 50 ms where nobody looks. It asks
 * for no animation frame: each would have the browser go through the whole page, also where no view of the
 * run is in sight.
 *
 * What waits is one span of steps per stream, however long a tab sleeps.
 */
export class ChangeGate implements IDisposable {
  constructor(private readonly emit: (change: SourceChange) => void) {}

  /** Note that rows of a stream came. */
  note(stream: string, firstStep: number, lastStep: number): void {
    const span = this.spans.get(stream);
    this.spans.set(stream, [
      Math.min(span?.[0] ?? firstStep, firstStep),
      Math.max(span?.[1] ?? lastStep, lastStep)
    ]);
    if (!this.scheduled && !this.isDisposed) {
      this.scheduled = true;
      const page: IPage = globalThis;
      const wait = page.document?.visibilityState === 'visible' ? SEEN_MS : UNSEEN_MS;
      this.timer = setTimeout(() => this.flush(), wait);
    }
  }

  dispose(): void {
    this.isDisposed = true;
    clearTimeout(this.timer);
    this.spans.clear();
  }

  isDisposed = false;

  private flush(): void {
    this.scheduled = false;
    const spans = [...this.spans];
    this.spans.clear();
    for (const [stream, [firstStep, lastStep]] of spans) {
      this.emit({ kind: 'rows', stream, firstStep, lastStep });
    }
  }

  private readonly spans = new Map<string, [number, number]>();
  private scheduled = false;
  private timer: ReturnType<typeof setTimeout> | undefined;
}

/** Join what the recording has of a flag with what came here. */
export function joinShapes(there: ITensorShape, here: ITensorShape): ITensorShape {
  return {
    parts: [...new Set([...there.parts, ...here.parts])],
    layers: ascending([...there.layers, ...here.layers]),
    ranks: ascending([...(there.ranks ?? []), ...(here.ranks ?? [])]),
    passes: [...new Set([...(there.passes ?? []), ...(here.passes ?? [])])]
  };
}

/** Join the recording's tensors with those that are here, each once. */
export function joinRows(
  there: ITensorResult,
  here: ITensorResult
): Pick<ITensorResult, 'rows' | 'sampledEvery' | 'evictedRows'> {
  const place = ({ step, microBatch, flag, part, phase, pass, rank, layer, call }: ITensorRow): string =>
    [step, microBatch, flag, part, phase, pass, rank, layer, call].join('\n');
  const rows = new Map(there.rows.map(row => [place(row), row]));
  here.rows.forEach(row => rows.set(place(row), row));
  return {
    rows: [...rows.values()].sort(compareRows),
    sampledEvery: there.sampledEvery,
    evictedRows: 0
  };
}

/** The columns that tell one row of a stream from another; none where nobody says. */
export function keyColumns({ policy }: IStreamInfo): readonly string[] {
  const { identity, newer = 'step' } = policy;
  return identity === undefined ? [] : [...identity, newer, 'step'];
}

/**
 * Put the rows that came and that the recording has not beside those that it has, each once and by step. Of
 * the newest step it may have a part only.
 * @param keys - Columns that tell rows apart; all that hold no lists where there are none.
 */
export function joinTables(there: IStreamRows, here: IStreamRows, keys: readonly string[]): IStreamRows {
  const names = keys.length > 0 ? keys : Object.keys(here.columns).filter(name => !hasLists(here, name));
  const keyOf = ({ columns }: IStreamRows, row: number): string =>
    JSON.stringify(names.map(name => own(columns, name)?.[row]));
  const known = new Set(Array.from({ length: there.length }, (_, row) => keyOf(there, row)));
  const later = Array.from({ length: here.length }, (_, row) => row).filter(
    row => !known.has(keyOf(here, row))
  );
  const places = [
    ...Array.from({ length: there.length }, (_, row) => ({ rows: there, row })),
    ...later.map(row => ({ rows: here, row }))
  ];
  const stepOf = ({ rows, row }: (typeof places)[number]): number => Number(rows.columns['step']?.[row]);
  places.sort((a, b) => stepOf(a) - stepOf(b));
  const join = (name: string, column: RowColumn): RowColumn => {
    const cells = places.map(({ rows, row }) => own(rows.columns, name)?.[row]);
    return column instanceof Float64Array ? Float64Array.from(cells, Number) : (cells as string[]);
  };
  return {
    length: places.length,
    columns: Object.fromEntries(
      Object.entries(there.columns).map(([name, column]) => [name, join(name, column)])
    ),
    evictedRows: 0,
    sampledEvery: there.sampledEvery
  };
}

const hasLists = ({ columns }: IStreamRows, name: string): boolean => Array.isArray(own(columns, name)?.[0]);

/** First and last step, both included. */
type StepSpan = readonly [number, number];

const MOST = 256;

/** Ranges of steps, ascending and disjoint, in bounded memory: beyond 256 the two nearest are merged. */
export class StepSpans {
  get all(): readonly StepSpan[] {
    return this.spans;
  }

  add(first: number, last: number): void {
    const before = this.spans.filter(span => span[1] < first - 1);
    const after = this.spans.filter(span => span[0] > last + 1);
    const touched = this.spans.slice(before.length, this.spans.length - after.length);
    const low = Math.min(first, ...touched.map(span => span[0]));
    const high = Math.max(last, ...touched.map(span => span[1]));
    this.spans = [...before, [low, high], ...after];
    if (this.spans.length > MOST) {
      const distances = this.spans.slice(1).map((span, at) => span[0] - (this.spans[at]?.[1] ?? 0));
      const nearest = distances.indexOf(Math.min(...distances));
      const [left, right] = this.spans.slice(nearest, nearest + 2);
      if (left && right) {
        this.spans.splice(nearest, 2, [left[0], right[1]]);
      }
    }
  }

  /** Take a range away that is one of them. */
  remove(first: number, last: number): void {
    this.spans = this.spans.filter(span => span[0] !== first || span[1] !== last);
  }

  /** The ranges that lie, in part at least, between two steps. */
  within(first: number, last: number): StepSpan[] {
    return this.spans.filter(span => span[1] >= first && span[0] <= last);
  }

  clear(): void {
    this.spans = [];
  }

  private spans: StepSpan[] = [];
}

/** How soon the index of a recording is asked for again while no step comes, ms. */
const INDEX_MS = 2000;
/** Ranges that are brought in again after one status: a page under load is not given more work at once. */
const MOST_AT_ONCE = 4;

/**
 * What a live run's page does not have of the steps that were: those before it was opened, those that memory
 * no longer holds, and those of frames that were lost. They are read from the recording; where nobody can
 * read one they are named.
 */
export class LivePast {
  /** @param recording - The recording as the server reads it; null where nobody can. */
  constructor(private recording: RecordingRows | null) {}

  /** Newest step that may be here in part only, since the page joined in its middle; 0 if all came. */
  joined = 0;

  newest: number | null = null;

  /** Note that frames were lost between the newest step and this one. */
  lose(step: number): void {
    if (this.newest !== null) {
      this.lost.add(Math.min(this.newest, step), Math.max(this.newest, step));
    }
  }

  /** Note the first step whose tensors came. */
  join(step: number): void {
    this.joined = step;
    this.hasJoined = true;
  }

  get isEmpty(): boolean {
    return !this.hasJoined;
  }

  get isRecorded(): boolean {
    return this.recording !== null;
  }

  /** Steps that are missing here and that nobody gives, between two of them. */
  missing(first: number, last: number, status: Status | null): IMissingSteps[] {
    const found = this.lost.within(first, last).map(([from, to]): IMissingSteps => ({
      first: from,
      last: to,
      why: 'Frames of these steps did not arrive here.'
    }));
    const begin = Math.max(first, status?.streams?.['tensors']?.first_step ?? Infinity);
    const end = Math.min(last, this.joined - 1);
    if (this.recording === null && begin <= end) {
      const why =
        'These steps were before this page was opened, and there is no recording of them that could be read.';
      found.unshift({ first: begin, last: end, why });
    }
    return found;
  }

  /**
   * What the recording has of tensors; nothing where there is none.
   * @param upTo - Newest step that is not in memory whole: what the recording has is asked for again until it
   * covers this step.
   */
  async index(upTo: number): Promise<readonly ITensorIndex[]> {
    const read = async (): Promise<readonly ITensorIndex[]> =>
      (await this.read(recording => recording.index())) ?? [];
    const isAsked = this.indexedAt > -Infinity;
    // Of its last step the recording may have had a part.
    const covers = ({ steps }: ITensorIndex): boolean => (steps.at(-1) ?? 0) > upTo;
    const found = isAsked ? await read() : [];
    if (found.some(covers)) {
      return found;
    }
    const now = Date.now();
    if (this.newest !== this.indexedWhen || now - this.indexedAt > INDEX_MS) {
      this.recording?.forget();
      [this.indexedWhen, this.indexedAt] = [this.newest, now];
    }
    return read();
  }

  /** The rows of a query up to a step, in the recording; null where there is none. */
  tensors(query: ITensorQuery, upTo: number, signal?: AbortSignal): Promise<ITensorResult | null> {
    const [first, last] = query.steps ?? [0, upTo];
    return first > upTo
      ? Promise.resolve(null)
      : this.read(recording => recording.tensors({ ...query, steps: [first, Math.min(last, upTo)] }, signal));
  }

  /** A trend up to a step, in the recording; null where there is none. */
  trend(query: TrendRequest, upTo: number, signal?: AbortSignal): Promise<ITrendAnswer | null> {
    const [first, last] = query.steps ?? [0, upTo];
    return first > upTo
      ? Promise.resolve(null)
      : this.read(recording => recording.trend({ ...query, steps: [first, Math.min(last, upTo)] }, signal));
  }

  /**
   * Bring in again what was lost.
   * @param step - The newest step of the run: of an earlier one everything is recorded.
   * @param take - Takes rows in; called once for each range.
   */
  async refill(
    step: number,
    take: (rows: readonly ITensorRow[], first: number, last: number) => void
  ): Promise<void> {
    if (this.refilling || this.recording === null) {
      return;
    }
    this.refilling = true;
    try {
      const due = this.lost.all.filter(([, last]) => last < step && !this.refused.has(last));
      for (const [first, last] of due.slice(0, MOST_AT_ONCE)) {
        const rows = await this.read(recording => recording.rows(first, last));
        if (rows === null) {
          // Too many to be sent, or nobody can read them: they stay missing.
          this.refused.add(last);
          continue;
        }
        this.lost.remove(first, last);
        take(rows, first, last);
      }
    } finally {
      this.refilling = false;
    }
  }

  /** Another question of the recording; null where there is none. */
  async read<T>(ask: (recording: RecordingRows) => Promise<T>): Promise<T | null> {
    if (this.recording === null) {
      return null;
    }
    try {
      return await ask(this.recording);
    } catch (error) {
      if (error instanceof StoreError && error.code === 'gone') {
        this.recording = null;
        return null;
      }
      if (error instanceof StoreError && error.code === 'unavailable') {
        // What is here is shown; the next question tries again.
        return null;
      }
      throw error;
    }
  }

  clear(): void {
    this.lost.clear();
    this.refused.clear();
    this.recording?.forget();
    [this.joined, this.newest, this.hasJoined, this.indexedAt] = [0, null, false, -Infinity];
  }

  dispose(): void {
    this.recording?.dispose();
    this.recording = null;
  }

  private readonly lost = new StepSpans();
  private readonly refused = new Set<number>();
  private hasJoined = false;
  private refilling = false;
  /** Newest step when the index was asked for. */
  private indexedWhen: number | null = null;
  private indexedAt = -Infinity;
}

import type {
  IMomentIndex,
  IMomentRows,
  IMomentSource,
  MomentStat,
  IMomentGroups
} from '../store/row-moments';
import { ClientError } from '../client/rest';
import { AggregateError } from './moment-merge';
import { statsOf, pick, rowsAt } from './moment-ratio';
import type { TableAnswer, TableQuestion } from './moment-tables';
import { pageQueue, type TablePlace, type WorkQueue } from './work-queue';
import { WORKER_ROWS } from './worker-link';
import type { MomentGroupsRequest } from '../protocol/requests.generated';

/**
 * Rows that are kept over all runs when nobody says otherwise; beyond it those that were asked for longest
 * ago go.
 */
const CACHE_ROWS = 4_000_000;

interface IEntry {
  readonly id: string;
  readonly stat: MomentStat;
  place: TablePlace;
  /** Version of the source's index that the rows are of; null before there are any. */
  version: string | null;
  warnings: string;
  rows: number;
  first: number;
  last: number;
  /** Rows at which the source said that they are too many to be brought here. */
  tooMany: number;
  usedAt: number;
  /** What is done with this entry, one after the other. */
  turn: Promise<unknown>;
}

/**
 * Brings rows of moments from their sources once, keeps them by run and stat, and adds to them what is new.
 *
 * Where any stat of a run has many rows, all of the run's are in the worker.
 */
export class MomentCache {
  /**
   * @param queue - Where the tables are kept.
   * @param limitRows - Bound of all rows.
   * @param workerRows - With more rows than this in any stat, a run's tables are in the worker.
   */
  constructor(
    private readonly queue: WorkQueue,
    private readonly limitRows = CACHE_ROWS,
    private readonly workerRows = WORKER_ROWS
  ) {}

  /**
   * Ask something of a run's rows.
   *
   * @returns The answer, or null where the source has more rows than it brings here.
   * @throws AggregateError as the tables, and StoreError as the source.
   */
  async ask(
    source: IMomentSource,
    stats: readonly MomentStat[],
    question: (tables: readonly string[]) => TableQuestion,
    signal?: AbortSignal
  ): Promise<TableAnswer | null> {
    for (let attempt = 0; ; attempt += 1) {
      try {
        return await this.once(source, stats, question, signal);
      } catch (error) {
        // A worker that broke took its tables along: bring the rows here.
        if (!(error instanceof AggregateError && error.code === 'lost') || attempt > 1) {
          throw error;
        }
        this.all.forEach(entry => {
          entry.version = null;
        });
      }
    }
  }

  private async once(
    source: IMomentSource,
    stats: readonly MomentStat[],
    question: (tables: readonly string[]) => TableQuestion,
    signal?: AbortSignal
  ): Promise<TableAnswer | null> {
    const index = await source.index(signal);
    const entries = stats.map(stat => this.entry(source, stat));
    const isTooMany = ({ stat, version }: IEntry): boolean =>
      version === null &&
      (index.stats.find(each => each.stat === stat)?.rows ?? 0) > (source.limitRows ?? Infinity);
    if (entries.some(isTooMany)) {
      return null;
    }
    const large = index.stats.some(({ rows }) => rows > this.workerRows);
    const place = large ? await this.queue.placeOf() : 'here';
    for (const entry of entries) {
      const turn = entry.turn
        .catch(() => undefined)
        .then(() => this.refresh(source, entry, index, place, signal));
      entry.turn = turn;
      if (!(await turn)) {
        return null;
      }
    }
    signal?.throwIfAborted();
    this.evict(entries);
    const answer = await this.queue.askTables(place, question(entries.map(({ id }) => id)), []);
    signal?.throwIfAborted();
    return answer;
  }

  /** Bring what an entry lacks; false where it is too much. */
  private async refresh(
    source: IMomentSource,
    entry: IEntry,
    seen: IMomentIndex,
    place: TablePlace,
    signal?: AbortSignal
  ): Promise<boolean> {
    entry.usedAt = ++this.clock;
    let index = seen;
    const about = (): IMomentIndex['stats'][number] | undefined =>
      index.stats.find(({ stat }) => stat === entry.stat);
    if (entry.version === index.version && entry.place === place) {
      return true;
    }
    if ((about()?.rows ?? 0) >= entry.tooMany) {
      return false;
    }
    const warnings = index.warnings.join('\n');
    const more =
      entry.version !== null &&
      entry.place === place &&
      entry.warnings === warnings &&
      (about()?.rows ?? 0) >= entry.rows &&
      about()?.first === entry.first;
    let reload = !more;
    if (more) {
      if (!(await this.load(source, entry, entry.last, signal))) {
        entry.tooMany = about()?.rows ?? 0;
        return false;
      }
      if (entry.rows !== about()?.rows) {
        // Rows may have come since the index was read; else something earlier is not what it was.
        index = await source.index(signal);
        reload = entry.rows !== about()?.rows;
      }
    }
    if (reload) {
      if (entry.version !== null && entry.place !== place) {
        await this.queue.askTables(entry.place, { kind: 'drop', table: entry.id }, []).catch(() => undefined);
      }
      entry.place = place;
      if (!(await this.load(source, entry, null, signal))) {
        entry.tooMany = about()?.rows ?? 0;
        return false;
      }
    }
    // Rows that came while these were brought make another version, so that the next question looks again.
    entry.version = index.version;
    entry.warnings = index.warnings.join('\n');
    entry.first = about()?.first ?? 0;
    return true;
  }

  /** Bring the rows from a step on, or all of them. */
  private async load(
    source: IMomentSource,
    entry: IEntry,
    from: number | null,
    signal?: AbortSignal
  ): Promise<boolean> {
    const steps = from === null ? null : ([from, Number.MAX_SAFE_INTEGER] as const);
    const rows = await source.rows({ stats: [entry.stat], steps }, signal);
    if (rows === null) {
      entry.version = null;
      return false;
    }
    const { stat: _, ...part } = rows;
    // Whatever happens on the way, half of a table is none.
    entry.version = null;
    const last = rows.step[rows.step.length - 1];
    const answer = await this.queue.askTables(
      entry.place,
      { kind: 'load', table: entry.id, stat: entry.stat, rows: part, from },
      buffersOf(rows)
    );
    entry.rows = answer.kind === 'rows' ? answer.rows : 0;
    entry.last = last ?? entry.last;
    return true;
  }

  private entry(source: IMomentSource, stat: MomentStat): IEntry {
    const entries = this.known.get(source) ?? new Map<MomentStat, IEntry>();
    this.known.set(source, entries);
    const entry: IEntry = entries.get(stat) ?? {
      id: `${stat} ${(this.made += 1)}`,
      stat,
      place: 'here',
      version: null,
      warnings: '',
      rows: 0,
      first: 0,
      last: -1,
      tooMany: Infinity,
      usedAt: 0,
      turn: Promise.resolve()
    };
    if (!entries.has(stat)) {
      entries.set(stat, entry);
      this.gone.register(source, entry);
    }
    this.all.add(entry);
    return entry;
  }

  private evict(kept: readonly IEntry[]): void {
    const others = [...this.all].filter(entry => !kept.includes(entry)).sort((a, b) => a.usedAt - b.usedAt);
    let rows = [...this.all].reduce((sum, entry) => sum + entry.rows, 0);
    for (const entry of others) {
      if (rows <= this.limitRows) {
        return;
      }
      rows -= entry.rows;
      this.drop(entry);
    }
  }

  private drop(entry: IEntry): void {
    this.all.delete(entry);
    entry.version = null;
    entry.rows = 0;
    this.queue.askTables(entry.place, { kind: 'drop', table: entry.id }, []).catch(() => undefined);
  }

  private readonly known = new WeakMap<IMomentSource, Map<MomentStat, IEntry>>();
  private readonly all = new Set<IEntry>();
  private readonly gone = new FinalizationRegistry<IEntry>(entry => this.drop(entry));
  private clock = 0;
  private made = 0;
}

/** The memory of the columns, each buffer once: columns may share one. */
function buffersOf(rows: IMomentRows): ArrayBufferLike[] {
  const columns = Object.values(rows).filter(
    column => column instanceof Float64Array || column instanceof Int32Array
  );
  return [...new Set(columns.map(column => column.buffer))];
}

const pageCache = new MomentCache(pageQueue);

/**
 * Group the statistics of a run: from its rows where they can be brought here, which is done once, else as
 * the server groups them.
 *
 * @throws AggregateError when the question contradicts itself, `mixed` when inputs and outputs would enter
 * one group.
 * @throws StoreError when the source cannot answer.
 */
export async function groupMoments(
  source: IMomentSource,
  question: MomentGroupsRequest,
  signal?: AbortSignal,
  cache: MomentCache = pageCache
): Promise<IMomentGroups> {
  const answer = await cache.ask(
    source,
    statsOf(question),
    tables => ({ kind: 'group', tables, question }),
    signal
  );
  try {
    return answer?.kind === 'groups'
      ? answer.groups
      : within(await source.groups(question, signal), question.steps ?? null);
  } catch (error) {
    throw refusal(error) ?? error;
  }
}

/** Leave of groups the steps that were asked for: a file may hold one answer for more of them. */
function within(groups: IMomentGroups, steps: readonly [number, number] | null): IMomentGroups {
  const [first, last] = steps ?? [-Infinity, Infinity];
  const rows = rowsAt(groups, [first, last]);
  if (rows.length === groups.step.length) {
    return groups;
  }
  const kept = pick(groups, rows);
  const complete = new Set(groups.step).size === groups.stepsTotal;
  return { ...kept, stepsTotal: complete ? new Set(kept.step).size : groups.stepsTotal };
}

/** What the server says of a question that contradicts itself, as it would be said here. */
function refusal(error: unknown): AggregateError | null {
  const cause = error instanceof Error ? error.cause : null;
  return cause instanceof ClientError && cause.status === 400
    ? new AggregateError(cause.message, cause.serverCode === 'mixed' ? 'mixed' : 'invalid')
    : null;
}

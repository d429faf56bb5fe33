import { backOff } from '../client/pending-changes';
import { ClientError } from '../client/rest';
import type { IMomentsIndex, IMomentsReader, IReadBy, IReading } from '../client/run-reader';
import { ArrowColumns } from '../protocol/arrow-columns';
import { badFrame } from '../protocol/frame';
import { MOMENT_STATS } from '../protocol/moment-statistics';
import type { MomentGroupsRequest, MomentRowsRequest } from '../protocol/requests.generated';
import type {
  IMomentGroups,
  IMomentRows,
  MomentColumn,
  MomentKey,
  MomentStat,
  IMomentIndex,
  IMomentSource,
  ReadingProgress,
  TasksProgress
} from './row-moments';
import { gradientStage, numbersOf, streamName } from './row-moments';
import { RowCache } from './recording';
import { closedHere, storeError } from './source';

/**
 * Rows as the server sent them.
 * @throws ProtocolError `bad-frame`.
 */
function rowsOf(bytes: Uint8Array): IMomentRows {
  const columns = new ArrowColumns(bytes);
  const { codes, values: names } = columns.words('name');
  const stages = columns.words('gradient_stage');
  const stageOf = stages.values.map(gradientStage);
  const whole = {
    nameId: () => codes,
    gradientStage: () => stages.codes.map(code => stageOf[code] ?? 0)
  };
  return {
    stat: statsOf(columns),
    names,
    ...numbersOf(
      name => (name in whole ? whole[name as keyof typeof whole]() : columns.whole(streamName(name))),
      name => columns.floats(streamName(name))
    )
  };
}

/**
 * Groups as the server sent them.
 * @throws ProtocolError `bad-frame`.
 */
function groupsOf(
  bytes: Uint8Array,
  by: readonly MomentColumn[],
  groupsTotal: number,
  stepsTotal: number
): IMomentGroups {
  const columns = new ArrowColumns(bytes);
  const group = Uint32Array.from(columns.whole('group'));
  const keys: MomentKey[] = [];
  group.forEach((index, row) => {
    if (index === keys.length) {
      keys.push(by.map(column => columns.cell(column, row)));
    }
  });
  return {
    keys,
    group,
    step: columns.floats('step'),
    samples: columns.floats('samples'),
    value: columns.floats('value'),
    count: columns.floats('count'),
    nonFinite: columns.floats('nonfinite'),
    error: columns.floats('error'),
    scaled: Uint8Array.from(columns.floats('scaled')),
    groupsTotal,
    stepsTotal
  };
}

function statsOf(columns: ArrowColumns): MomentStat[] {
  const { codes, values } = columns.words('stat');
  const known = values.map(value => {
    const stat = MOMENT_STATS.find(one => one === value);
    if (stat === undefined) {
      throw badFrame(`The server sent rows of a statistic that is not known here: ${value}.`);
    }
    return stat;
  });
  const stats = new Array<MomentStat>(codes.length);
  for (let row = 0; row < codes.length; row += 1) {
    stats[row] = known[codes[row] as number] as MomentStat;
  }
  return stats;
}

/** How the statistics of a run are read from the server. */
export interface IServerStatisticsOptions {
  readonly name: () => string;
  /** Whether there may be more later; `more` is then called with the first and last step that changed. */
  readonly grows: boolean;
  readonly more?: (first: number, last: number) => void;
  /** Rows that are brought here at once; a million when absent. */
  readonly limitRows?: number;
}

const LIMIT_ROWS = 1_000_000;
const GROUP_BYTES = 32 * (1 << 20);
// Seconds. While files are read for the first time, an answer says how far it is.
const READING_WAIT = 1;
// A browser opens few connections to one server: many sources take turns.
const WATCH_WAIT = 20;
const TURN_WAIT = 3;
const FEW_WATCHERS = 2;
// Milliseconds before a question is asked again that brought nothing new, however soon it was answered.
const NOTHING_NEW = 1000;
// Milliseconds between two questions how far a cluster is.
const TASKS_EVERY = 1000;
let watchers = 0;

/** The statistics of one run as the Jupyter server reads them. */
export class ServerMoments implements IMomentSource {
  constructor(
    private readonly id: string,
    private readonly api: IMomentsReader,
    private readonly options: IServerStatisticsOptions
  ) {
    this.limitRows = options.limitRows ?? LIMIT_ROWS;
  }

  readonly limitRows: number;

  /**
   * What there is. Where it may become more, it is followed from the first call on.
   * @param told - Hears how far the server is while it reads files for the first time.
   */
  index(signal?: AbortSignal, onProgress?: ReadingProgress): Promise<IMomentIndex> {
    return this.guarded(async () => {
      if (onProgress !== undefined) {
        this.listeners.add(onProgress);
      }
      try {
        const index = this.known ?? (await this.loads.get('index', own => this.load(own), signal));
        this.follow();
        return this.known ?? index;
      } finally {
        if (onProgress !== undefined) {
          this.listeners.delete(onProgress);
        }
      }
    });
  }

  /** What there is now, asked anew. */
  latest(signal?: AbortSignal, onProgress?: ReadingProgress): Promise<IMomentIndex> {
    this.known = this.following ? this.known : null;
    return this.index(signal, onProgress);
  }

  rows(request: MomentRowsRequest, signal?: AbortSignal): Promise<IMomentRows | null> {
    return this.guarded(async () => {
      const asked = { limit_rows: this.limitRows, ...request };
      try {
        const answer = await this.read(own => this.api.rows(this.id, asked, own), signal);
        return rowsOf(answer.bytes);
      } catch (error) {
        if (error instanceof ClientError && error.status === 413) {
          return null;
        }
        throw error;
      }
    });
  }

  /** Groups as the server makes them; equal questions about an unchanged run are asked once. */
  groups(request: MomentGroupsRequest, signal?: AbortSignal): Promise<IMomentGroups> {
    return this.guarded(() => {
      const key = JSON.stringify([this.known?.version, request]);
      const ask = async (own: AbortSignal): Promise<IMomentGroups> => {
        const answer = await this.toldOf(this.read(inner => this.api.groups(this.id, request, inner), own));
        this.usesTasks ||= (answer.tasks ?? 0) > 0;
        return groupsOf(answer.bytes, request.by, answer.groups, answer.steps);
      };
      return this.answers.get(key, ask, signal);
    });
  }

  get readBy(): IReadBy | null {
    return this.usesTasks ? this.cluster : null;
  }

  watchTasks(told: TasksProgress): () => void {
    this.watching.add(told);
    return () => this.watching.delete(told);
  }

  get isDisposed(): boolean {
    return this.abort.signal.aborted;
  }

  /** Stop asking and forget the answers. */
  dispose(): void {
    this.abort.abort();
    this.loads.clear();
    this.answers.clear();
    this.listeners.clear();
    this.watching.clear();
    this.known = null;
  }

  private async load(signal: AbortSignal): Promise<IMomentIndex> {
    const answer = await this.read(own => this.api.index(this.id, null, READING_WAIT, own), signal);
    if (answer === null) {
      throw new ClientError('bad-answer', 'The Jupyter server knows of no change without a first answer.');
    }
    return this.take(answer);
  }

  /** Ask again until the server has read the files. */
  private async read<T extends object | null>(
    ask: (signal: AbortSignal) => Promise<T | IReading>,
    signal: AbortSignal | undefined
  ): Promise<T> {
    const either = signal === undefined ? this.abort.signal : AbortSignal.any([signal, this.abort.signal]);
    for (;;) {
      either.throwIfAborted();
      const answer = await ask(either);
      if (!isReading(answer)) {
        return answer;
      }
      const { done, total } = answer;
      this.listeners.forEach(onProgress => onProgress(done, total));
    }
  }

  /** Wait for a cluster's answer, and tell now and then how far it is. */
  private async toldOf<T>(answer: Promise<T>): Promise<T> {
    const { cluster } = this;
    if (cluster === null || this.api.tasks === undefined) {
      return answer;
    }
    let waits = true;
    const asked = answer.finally(() => (waits = false));
    const isWaiting = (): boolean => waits && !this.isDisposed;
    const tell = async (): Promise<void> => {
      for (;;) {
        await Promise.race([this.pause(TASKS_EVERY), asked]);
        if (!isWaiting()) {
          return;
        }
        const [done, of] = (await this.api.tasks?.(this.id, this.abort.signal)) ?? [0, 0];
        if (isWaiting() && of > 0) {
          this.watching.forEach(told => told(done, of, cluster));
        }
      }
    };
    // How far it is may be asked in vain: what it is comes anyway.
    tell().catch(() => undefined);
    return asked;
  }

  private take(answer: IMomentsIndex): IMomentIndex {
    this.cluster = answer.readBy ?? null;
    const { version, stats, samples, warnings, namesFrom } = answer;
    const before = this.known?.names ?? [];
    const names = namesFrom === 0 ? answer.names : [...before.slice(0, namesFrom), ...answer.names];
    this.known = { version, stats, names, samples, warnings };
    return this.known;
  }

  private follow(): void {
    if (this.options.grows && !this.following && !this.isDisposed) {
      this.following = true;
      watchers += 1;
      void this.watch().finally(() => {
        watchers -= 1;
        this.following = false;
      });
    }
  }

  private async watch(): Promise<void> {
    let failures = 0;
    while (!this.isDisposed && this.known !== null) {
      const { version, stats } = this.known;
      try {
        const wait = watchers > FEW_WATCHERS ? TURN_WAIT : WATCH_WAIT;
        const answer = await this.api.index(this.id, version, wait, this.abort.signal);
        failures = 0;
        if (answer !== null && !isReading(answer) && answer.version !== version) {
          const span = changed(stats, this.take(answer).stats);
          this.options.more?.(...span);
        } else {
          await this.pause(NOTHING_NEW);
        }
      } catch (error) {
        if (this.isDisposed || (error instanceof ClientError && error.status === 404)) {
          return;
        }
        failures += 1;
        await this.pause(backOff(failures, Math.random()));
      }
    }
  }

  private pause(ms: number): Promise<void> {
    return new Promise(resolve => {
      const { signal } = this.abort;
      const end = (): void => {
        clearTimeout(timer);
        signal.removeEventListener('abort', end);
        resolve();
      };
      const timer = setTimeout(end, ms);
      signal.addEventListener('abort', end);
    });
  }

  private async guarded<T>(work: () => Promise<T>): Promise<T> {
    if (this.isDisposed) {
      throw closedHere();
    }
    try {
      return await work();
    } catch (error) {
      throw this.isDisposed ? closedHere() : storeError(error, this.options.name());
    }
  }

  private readonly abort = new AbortController();
  private readonly loads = new RowCache<IMomentIndex>(0, () => 1);
  private readonly answers = new RowCache<IMomentGroups>(GROUP_BYTES, sizeOf);
  private readonly listeners = new Set<ReadingProgress>();
  private readonly watching = new Set<TasksProgress>();
  private cluster: IReadBy | null = null;
  private usesTasks = false;
  private known: IMomentIndex | null = null;
  private following = false;
}

function isReading(answer: object | null): answer is IReading {
  return answer !== null && 'kind' in answer && answer.kind === 'reading';
}

/** First and last step of what is another than before. */
function changed(before: IMomentIndex['stats'], after: IMomentIndex['stats']): [number, number] {
  let [first, last] = [Infinity, 0];
  for (const entry of after) {
    const old = before.find(({ stat }) => stat === entry.stat);
    if (old === undefined || old.rows !== entry.rows || old.last !== entry.last) {
      first = Math.min(first, old === undefined ? entry.first : Math.min(old.last, entry.last));
      last = Math.max(last, entry.last);
    }
  }
  return [Math.min(first, last), last];
}

const sizeOf = ({ group, keys }: IMomentGroups): number => group.length * 56 + keys.length * 128;

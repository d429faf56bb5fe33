import { Signal, type ISignal } from '@lumino/signaling';
import type { IRunReader } from '../client/run-reader';
import type { IRunDetail, ITensorIndex } from '../client/runs-api';
import { streamTable } from '../protocol/frame-table';
import { pageBytes, readableStreams } from '../protocol/streams';
import { STREAMS } from '../protocol/streams.generated';
import type { Configured, Hello, Phase, Status } from '../protocol/messages.generated';
import { rangesText } from '../protocol/ranges';
import { RowCache } from './row-cache';
import { RowStore, type IRowsQuery, type IStreamRows } from './row-store';
import { RunLink } from './run-link';
import { ScalarStore } from './scalar-store';
import { ServerMoments } from './server-moments';
import type {
  ConnectionState,
  IRunSource,
  IScalarColumns,
  ITensorQuery,
  ITensorResult,
  ITensorShape,
  SourceChange,
  StepsQuery
} from './source';
import { StoreError, noStream, storeError } from './store-error';
import { compareRows, tensorRows } from './tensor-rows';

/** Bounds of a recorded run in the browser. */
export interface IRecordedRunOptions {
  /** Bytes of tensors to keep; as the stream's policy says when absent. */
  cacheBytes?: number;
  /** Bytes that one answer may have; beyond, the server thins steps out. 32 MiB when absent. */
  limitBytes?: number;
  /** What its views tell one another; a link of its own when absent. */
  link?: RunLink;
}

const MIB = 1 << 20;

/** A closed run, or a tree of raw-moment files: each query asks its reader for just the rows that it needs. */
export class RecordedRun implements IRunSource {
  /**
   * @param id - Run id.
   * @param detail - What the server answered for it.
   * @param api - Where to ask for rows.
   * @param options - Bounds.
   */
  constructor(
    readonly id: string,
    private readonly detail: IRunDetail,
    private readonly api: IRunReader,
    private readonly options: IRecordedRunOptions = {}
  ) {
    this.link = options.link ?? new RunLink();
    this.answers = new RowCache(options.cacheBytes ?? pageBytes(STREAMS.tensors), sizeOf);
    const ended = ['finished', 'lost'].includes(detail.status.state) && detail.kind === undefined;
    this.moments = new ServerMoments(id, api.moments, {
      name: () => this.name,
      grows: !ended,
      more: (firstStep, lastStep) =>
        this._changed.emit({ kind: 'rows', stream: 'moments', firstStep, lastStep })
    });
  }

  readonly moments: ServerMoments;

  readonly link: RunLink;

  get name(): string {
    return this.hello.run.name;
  }

  get hello(): Hello {
    return this.detail.hello;
  }

  /** The last status; streams whose file was cut short are among its warnings. */
  get status(): Status {
    const { status, truncated } = this.detail;
    const own = truncated.map(
      stream => `The recording of ${stream} was cut short; everything up to its last whole message is here.`
    );
    return own.length === 0 ? status : { ...status, warnings: [...(status.warnings ?? []), ...own] };
  }

  readonly connection: ConnectionState = { kind: 'recorded' };

  get changed(): ISignal<this, SourceChange> {
    return this._changed;
  }

  async steps(flag: string, phase?: Phase, of: StepsQuery = {}): Promise<readonly number[]> {
    const entries = (await this.index()).filter(
      entry =>
        entry.flag === flag &&
        (phase === undefined || entry.phase === phase) &&
        (of.pass === undefined || entry.pass === of.pass)
    );
    const [only] = entries;
    return entries.length === 1 && only !== undefined
      ? only.steps
      : [...new Set(entries.flatMap(entry => entry.steps))].sort((a, b) => a - b);
  }

  async shapeOf(flag: string): Promise<ITensorShape> {
    const entries = (await this.index()).filter(entry => entry.flag === flag);
    // In the order in which the run names them.
    const known = this.hello.flags.find(({ name }) => name === flag);
    const held = entries.flatMap(entry => entry.parts);
    const ascending = (numbers: readonly number[]): number[] => [...new Set(numbers)].sort((a, b) => a - b);
    return {
      parts: [...new Set([...(known?.parts ?? []), ...held])].filter(part => held.includes(part)),
      layers: ascending(entries.flatMap(entry => entry.layers)),
      ranks: ascending(entries.flatMap(entry => entry.ranks)),
      passes: [...new Set(entries.map(entry => entry.pass))]
    };
  }

  tensors(query: ITensorQuery, signal?: AbortSignal): Promise<ITensorResult> {
    return this.guarded(() =>
      this.answers.get(JSON.stringify({ ...query, reduced: undefined }), own => this.ask(query, own), signal)
    );
  }

  scalars(names?: readonly string[] | null): Promise<IScalarColumns> {
    return this.guarded(async () => {
      this.scalarRows ??= this.loadScalars().catch(error => {
        this.scalarRows = null;
        throw error;
      });
      return (await this.scalarRows).columns(names);
    });
  }

  table(stream: string, query: IRowsQuery = {}, signal?: AbortSignal): Promise<IStreamRows> {
    return this.guarded(async () => {
      const streams = readableStreams(this.hello.streams);
      const info = streams.get(stream);
      if (info === undefined) {
        throw noStream(stream, streams.keys());
      }
      const { steps, where } = query;
      const asked = {
        first: steps?.[0],
        last: steps?.[1],
        where,
        limitBytes: this.options.limitBytes ?? 32 * MIB
      };
      const { bytes, sampledEvery } = await this.api.stream(this.id, stream, asked, signal);
      const store = new RowStore(info);
      store.append(streamTable(stream, bytes, streams), false);
      return { ...store.rows(query), sampledEvery };
    });
  }

  configure(): Promise<Configured> {
    return Promise.reject(
      new StoreError(
        'recorded',
        'A recorded run cannot be changed. Choose a live run to change what is traced.'
      )
    );
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  /** Abort what is under way and forget the rows. */
  dispose(): void {
    if (this._isDisposed) {
      return;
    }
    this._isDisposed = true;
    this.moments.dispose();
    this.answers.clear();
    this.scalarRows = null;
    Signal.clearData(this);
  }

  private index(): Promise<readonly ITensorIndex[]> {
    return this.guarded(() => {
      this.tensorIndex ??= this.api.index(this.id).catch(error => {
        this.tensorIndex = null;
        throw error;
      });
      return this.tensorIndex;
    });
  }

  private async ask(query: ITensorQuery, signal: AbortSignal): Promise<ITensorResult> {
    if (query.layers?.length === 0) {
      return { rows: [], evictedRows: 0, sampledEvery: 1 };
    }
    const answer = await this.api.stream(
      this.id,
      'tensors',
      {
        flag: query.flag,
        part: query.part,
        phase: query.phase,
        pass: query.pass,
        rank: query.rank,
        measured: query.measured,
        layers: query.layers && rangesText(query.layers),
        first: query.steps?.[0],
        last: query.steps?.[1],
        limitBytes: this.options.limitBytes ?? 32 * MIB
      },
      signal
    );
    const rows = tensorRows(streamTable('tensors', answer.bytes)).sort(compareRows);
    return { rows, evictedRows: 0, sampledEvery: answer.sampledEvery };
  }

  private async loadScalars(): Promise<ScalarStore> {
    const store = new ScalarStore(pageBytes(STREAMS.scalars));
    const { bytes } = await this.api.stream(this.id, 'scalars');
    store.append(streamTable('scalars', bytes), false);
    return store;
  }

  private async guarded<T>(work: () => Promise<T>): Promise<T> {
    if (this._isDisposed) {
      throw new StoreError('disposed', 'This run was closed here. Open it again from the list of runs.');
    }
    try {
      return await work();
    } catch (error) {
      throw storeError(error, this.name);
    }
  }

  private readonly _changed = new Signal<this, SourceChange>(this);
  private readonly answers: RowCache<ITensorResult>;
  private tensorIndex: Promise<readonly ITensorIndex[]> | null = null;
  private scalarRows: Promise<ScalarStore> | null = null;
  private _isDisposed = false;
}

function sizeOf(result: ITensorResult): number {
  return result.rows.reduce((sum, row) => sum + row.values.byteLength + 600, 0);
}

import type { Ask, IQuestion } from '../client/rest';
import { TENSOR_ROW_BYTES } from './tensor-store';
import type { IRunReader, ITensorIndex } from '../client/run-reader';
import { streamTable } from '../protocol/frame-table';
import { pageBytes, type StreamMap, STREAMS } from '../protocol/streams';
import type { Phase } from '../protocol/messages.generated';
import type { ScalarsRequest, StreamRequest, TrendRequest } from '../protocol/requests.generated';
import { type IScalarAnswer, type ITrendAnswer, scalarsOfBytes, trendOfBytes } from './line-data';
import { ReadOnce } from './read-once';
import { RowStore, withColumns, type IRowsQuery, type IStreamRows } from './row-store';
import { auditRows, type IRunAudit } from './run-events';
import type { ITensorQuery, ITensorResult, ITensorRow, ITensorShape, StepsQuery } from './tensor-data';
import { compareRows, tensorRows } from './tensor-data';
import { noStream, storeError } from './source';

interface IEntry<T> {
  readonly promise: Promise<T>;
  readonly abort: AbortController;
  waiting: number;
  settled: boolean;
  bytes: number;
}

/** An LRU cache of answers by key, bounded in bytes; equal questions share one request. */
export class RowCache<T> {
  /** @param sizeOf - Bytes of one answer. */
  constructor(
    private readonly limitBytes: number,
    private readonly sizeOf: (value: T) => number
  ) {}

  get bytes(): number {
    return this._bytes;
  }

  /**
   * Return the answer for a key, asking when it is not there.
   * @param load - Asks; its signal is aborted when nobody waits any more.
   */
  async get(key: string, load: (signal: AbortSignal) => Promise<T>, signal?: AbortSignal): Promise<T> {
    signal?.throwIfAborted();
    const entry = this.entries.get(key) ?? this.start(key, load);
    this.entries.delete(key);
    this.entries.set(key, entry);
    entry.waiting += 1;
    try {
      return await untilAborted(entry.promise, signal);
    } finally {
      entry.waiting -= 1;
      if (entry.waiting === 0 && !entry.settled) {
        this.forget(key, entry);
        entry.abort.abort();
      }
    }
  }

  /** Abort what is under way and forget everything. */
  clear(): void {
    for (const entry of this.entries.values()) {
      entry.abort.abort();
    }
    this.entries.clear();
    this._bytes = 0;
  }

  private start(key: string, load: (signal: AbortSignal) => Promise<T>): IEntry<T> {
    const abort = new AbortController();
    const entry: IEntry<T> = { promise: load(abort.signal), abort, waiting: 0, settled: false, bytes: 0 };
    entry.promise.then(
      value => {
        entry.settled = true;
        if (this.entries.get(key) === entry) {
          entry.bytes = this.sizeOf(value);
          this._bytes += entry.bytes;
          this.shrink();
        }
      },
      () => {
        entry.settled = true;
        this.forget(key, entry);
      }
    );
    return entry;
  }

  private forget(key: string, entry: IEntry<T>): void {
    if (this.entries.get(key) === entry) {
      this.entries.delete(key);
      this._bytes -= entry.bytes;
    }
  }

  private shrink(): void {
    for (const [key, entry] of this.entries) {
      if (this._bytes <= this.limitBytes) {
        return;
      }
      if (entry.settled) {
        this.forget(key, entry);
      }
    }
  }

  private readonly entries = new Map<string, IEntry<T>>();
  private _bytes = 0;
}

function untilAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) {
    return promise;
  }
  return new Promise((resolve, reject) => {
    const stop = (): void => reject(signal.reason);
    signal.addEventListener('abort', stop, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', stop));
  });
}

export interface IRecordingOptions {
  /** Bytes of tensors to keep; as the stream's policy says when absent. */
  cacheBytes?: number;
  /** Bytes that one answer may have; beyond, the server thins steps out. 32 MiB when absent. */
  limitBytes?: number;
}

const MIB = 1 << 20;
const LINE_BYTES = 16 * MIB;

/** A run's recording, complete or growing: each question reads just its rows. Rejects with a `StoreError`. */
export class RecordingRows {
  constructor(
    private readonly id: string,
    private readonly api: IRunReader,
    private readonly name: () => string,
    options: IRecordingOptions = {}
  ) {
    this.limitBytes = options.limitBytes ?? 32 * MIB;
    this.answers = new RowCache(options.cacheBytes ?? pageBytes(STREAMS.tensors), sizeOf);
  }

  /** What there is of tensors, as of the first question since `forget`. */
  index(): Promise<readonly ITensorIndex[]> {
    return this.guarded(() => this.places.read());
  }

  /** How a question of an instrument is asked; undefined where nobody answers it. */
  asker<R extends object, A>(question: IQuestion<R, A>): Ask<R, A> | undefined {
    const ask = this.api.asker?.(question);
    return ask && ((request, signal) => this.guarded(() => ask(this.id, request, signal)));
  }

  /** Ask anew what there is: the recording has grown. */
  forget(): void {
    this.places.renew();
  }

  tensors(query: ITensorQuery, signal?: AbortSignal): Promise<ITensorResult> {
    const key = JSON.stringify({ ...query, reduced: undefined });
    return this.guarded(() => this.answers.get(key, own => this.ask(query, own), signal));
  }

  /** Every tensor of some steps, whatever its flag; null where they are too many to be sent. */
  rows(first: number, last: number): Promise<readonly ITensorRow[] | null> {
    return this.guarded(async () => {
      const request: StreamRequest = { steps: [first, last], limit_bytes: this.limitBytes };
      const answer = await this.api.stream(this.id, 'tensors', request);
      return answer.sampledEvery > 1 ? null : tensorRows(streamTable('tensors', answer.bytes));
    });
  }

  trend(request: TrendRequest, signal?: AbortSignal): Promise<ITrendAnswer> {
    const ask = async (own: AbortSignal): Promise<ITrendAnswer> =>
      trendOfBytes(await this.api.tensorLines(this.id, request, own));
    return request.layers?.length === 0
      ? Promise.resolve(NO_TREND)
      : this.guarded(() => this.trends.get(JSON.stringify(request), ask, signal));
  }

  scalarLines(request: ScalarsRequest, signal?: AbortSignal): Promise<IScalarAnswer> {
    const ask = async (own: AbortSignal): Promise<IScalarAnswer> =>
      scalarsOfBytes(await this.api.scalarLines(this.id, request, own));
    return this.guarded(() => this.scalars.get(JSON.stringify(request), ask, signal));
  }

  table(stream: string, streams: StreamMap, query: IRowsQuery, signal?: AbortSignal): Promise<IStreamRows> {
    return this.guarded(async () => {
      const whole = streams.get(stream);
      if (whole === undefined) {
        throw noStream(stream, streams.keys());
      }
      const info = withColumns(whole, query.columns);
      const columns = query.columns && info.fields.map(({ name }) => name);
      const request = { ...query, columns, limit_bytes: this.limitBytes };
      const { bytes, sampledEvery } = await this.api.stream(this.id, stream, request, signal);
      const store = new RowStore(info);
      store.append(streamTable(stream, bytes, new Map([[stream, info]])), false);
      // A reader may know of more rows than were asked for; what they are chosen by may not be among their
      // columns.
      const there = Object.entries(query.where ?? {}).filter(([column]) =>
        info.fields.some(each => each.name === column)
      );
      return { ...store.rows({ ...query, where: Object.fromEntries(there) }), sampledEvery };
    });
  }

  audit(): Promise<readonly IRunAudit[]> {
    return this.guarded(async () => {
      const { bytes } = await this.api.stream(this.id, 'audit', {});
      return auditRows(streamTable('audit', bytes));
    });
  }

  dispose(): void {
    this.answers.clear();
    this.trends.clear();
    this.scalars.clear();
  }

  private async ask(query: ITensorQuery, signal: AbortSignal): Promise<ITensorResult> {
    if (query.layers?.length === 0) {
      return { rows: [], evictedRows: 0, sampledEvery: 1 };
    }
    const { reduced: _, ...request } = query;
    const limited = { ...request, limit_bytes: this.limitBytes };
    const answer = await this.api.stream(this.id, 'tensors', limited, signal);
    const rows = tensorRows(streamTable('tensors', answer.bytes)).sort(compareRows);
    return { rows, evictedRows: 0, sampledEvery: answer.sampledEvery };
  }

  private async guarded<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      throw storeError(error, this.name());
    }
  }

  private readonly limitBytes: number;
  private readonly answers: RowCache<ITensorResult>;
  private readonly trends = new RowCache<ITrendAnswer>(LINE_BYTES, trendBytes);
  private readonly scalars = new RowCache<IScalarAnswer>(LINE_BYTES, scalarBytes);
  private readonly places = new ReadOnce(() => this.api.index(this.id));
}

const NO_TREND: ITrendAnswer = {
  lines: [],
  total: 0,
  missing: [],
  kept: false,
  compressors: [],
  ranks: [],
  newest: null,
  units: 0,
  evictedRows: 0
};

/** Steps of a flag, ascending. */
export function stepsIn(
  index: readonly ITensorIndex[],
  flag: string,
  phase: Phase | undefined,
  { pass }: StepsQuery
): readonly number[] {
  const entries = index.filter(
    entry =>
      entry.flag === flag &&
      (phase === undefined || entry.phase === phase) &&
      (pass === undefined || entry.pass === pass)
  );
  const [only] = entries;
  return entries.length === 1 && only !== undefined
    ? only.steps
    : ascending(entries.flatMap(entry => entry.steps));
}

/**
 * What there is of a flag.
 * @param parts - In the order in which the run names them.
 */
export function shapeIn(
  index: readonly ITensorIndex[],
  flag: string,
  parts: readonly string[] = []
): ITensorShape {
  const entries = index.filter(entry => entry.flag === flag);
  const held = entries.flatMap(entry => entry.parts);
  return {
    parts: [...new Set([...parts, ...held])].filter(part => held.includes(part)),
    layers: ascending(entries.flatMap(entry => entry.layers)),
    ranks: ascending(entries.flatMap(entry => entry.ranks)),
    passes: [...new Set(entries.map(entry => entry.pass))]
  };
}

/** Distinct numbers, ascending. */
export function ascending(numbers: readonly number[]): number[] {
  return [...new Set(numbers)].sort((a, b) => a - b);
}

function sizeOf(result: ITensorResult): number {
  return result.rows.reduce((sum, row) => sum + row.values.byteLength + TENSOR_ROW_BYTES, 0);
}

function trendBytes({ lines }: ITrendAnswer): number {
  return lines.reduce((sum, { steps }) => sum + 32 * steps.length, 1000);
}

function scalarBytes({ lines }: IScalarAnswer): number {
  return lines.reduce((sum, { steps }) => sum + 24 * steps.length, 1000);
}

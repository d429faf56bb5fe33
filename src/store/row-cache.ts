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

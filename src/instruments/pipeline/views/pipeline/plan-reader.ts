/** Least time between two plans of a run that goes on. */
const RENEW_MS = 10_000;

/** Reads and plans once for all panes of a view, and anew where options changed or rows came. */
export abstract class PlanReader<R> {
  /** What was read last; null before that. */
  last: R | null = null;

  /**
   * Rows have come: measured steps are to be read anew, unless that was done a moment ago.
   *
   * @returns Whether there is something to read.
   */
  renew(): boolean {
    this._isStale ||= Date.now() - this._readAt > RENEW_MS;
    return this._isStale;
  }

  dispose(): void {
    this._end.abort();
  }

  /**
   * Read, or return what is being read.
   *
   * @param asked - What is planned, as options; anything else is not read for anew.
   */
  protected once(asked: unknown, read: (signal: AbortSignal) => Promise<R>): Promise<R> {
    const key = JSON.stringify(asked);
    if (key !== this._key || this._isStale || this.reading === null) {
      this._end.abort();
      this._end = new AbortController();
      this._key = key;
      this._isStale = false;
      this._readAt = Date.now();
      this.reading = read(this._end.signal);
    }
    return this.reading;
  }

  /** What is read, or being read. */
  protected reading: Promise<R> | null = null;

  private _key = '';
  private _isStale = false;
  private _readAt = 0;
  private _end = new AbortController();
}

/** First and last of the steps that options ask for, where they do. */
export function rangeOf(steps: readonly [number, number] | null): { first?: number; last?: number } {
  return steps === null ? {} : { first: steps[0], last: steps[1] };
}

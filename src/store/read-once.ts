/** Reads once, and again when there is more, or something else is asked for. What failed is not kept. */
export class ReadOnce<A extends readonly unknown[], T> {
  constructor(private readonly _ask: (...asked: A) => Promise<T>) {}

  /** There is more, or all is other. */
  renew(): void {
    this._read = null;
  }

  read(...asked: A): Promise<T> {
    if (this._read !== null && asked.every((each, at) => each === this._asked?.[at])) {
      return this._read;
    }
    const read = this._ask(...asked);
    [this._asked, this._read] = [asked, read];
    read.catch(() => {
      this._read = this._read === read ? null : this._read;
    });
    return read;
  }

  private _asked: A | null = null;
  private _read: Promise<T> | null = null;
}

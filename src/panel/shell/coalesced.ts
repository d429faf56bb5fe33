/** Tells at once, and then at most every `ms`: a storm of changes costs a few drawings and not one each. */
export class Coalesced {
  constructor(
    private readonly tell: () => void,
    private readonly ms = 100
  ) {}

  /** Something changed that nobody is typing. */
  note(): void {
    if (this._timer !== undefined) {
      this._again = true;
      return;
    }
    this.tell();
    this._wait();
  }

  /** Stop telling. Safe twice. */
  dispose(): void {
    clearTimeout(this._timer);
    this._again = false;
    this._disposed = true;
  }

  private _wait(): void {
    if (this._disposed) {
      return;
    }
    this._timer = setTimeout(() => {
      this._timer = undefined;
      if (this._again) {
        this._again = false;
        this.note();
      }
    }, this.ms);
  }

  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _again = false;
  private _disposed = false;
}

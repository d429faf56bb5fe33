import { Signal, type ISignal } from '@lumino/signaling';

/** Whether something is unfolded, for those who unfold it from elsewhere. */
export class Unfolded {
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get open(): boolean {
    return this._open;
  }

  unfold(): void {
    this._set(true);
  }

  toggle(): void {
    this._set(!this._open);
  }

  /** Safe twice. */
  dispose(): void {
    Signal.clearData(this);
  }

  private _set(open: boolean): void {
    if (open !== this._open) {
      this._open = open;
      this._changed.emit();
    }
  }

  private readonly _changed = new Signal<this, void>(this);
  private _open = false;
}

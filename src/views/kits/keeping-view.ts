import type { SourceChange } from '../../store/source';
import { retryingAfter, type IStateActions } from '../shared/states';
import { ViewModel } from '../shared/view-model';

/** A view that keeps what it read until there are other rows, or something else is asked for. */
export abstract class KeepingView<O extends object, T> extends ViewModel<O> {
  /** Streams whose new rows are drawn. */
  protected abstract readonly streams: readonly string[];

  concerns(change: SourceChange): boolean {
    const concerned = change.kind === 'rows' && this.streams.includes(change.stream);
    // A hello may mean that all rows are others.
    this._isStale ||= concerned || change.kind === 'hello';
    return concerned;
  }

  protected override get actions(): IStateActions {
    return retryingAfter(this.env.actions, () => this.forget());
  }

  protected forget(): void {
    this._isStale = true;
  }

  /**
   * Read, unless that was done already.
   *
   * @param asked - What of the options it depends on.
   * @param lasts - Whether what was found need not be read again.
   */
  protected async once(asked: unknown, read: () => Promise<T>, lasts = (_: T): boolean => true): Promise<T> {
    const key = JSON.stringify(asked);
    if (this.kept === null || this._isStale || key !== this._key) {
      // What comes while this is read is read the next time.
      this._isStale = false;
      this._key = '';
      const found = await read();
      if (!lasts(found)) {
        return found;
      }
      [this.kept, this._key] = [found, key];
    }
    return this.kept;
  }

  /** What was read last. */
  protected kept: T | null = null;
  private _key = '';
  private _isStale = true;
}

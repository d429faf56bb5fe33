import { Signal } from '@lumino/signaling';
import type { IRunSource, SourceChange } from '../../store/source';

/** Tells at once, and then at most every `ms`: a storm of changes costs a few drawings and not one each. */
export class Coalesced {
  constructor(
    private readonly tell: () => void,
    private readonly ms = 100
  ) {}

  /** Something changed that nobody is typing. */
  note(): void {
    if (this._timer !== undefined) {
      this._isPending = true;
      return;
    }
    this.tell();
    this._wait();
  }

  /** Stop telling. Safe twice. */
  dispose(): void {
    clearTimeout(this._timer);
    this._isPending = false;
    this._disposed = true;
  }

  private _wait(): void {
    if (this._disposed) {
      return;
    }
    this._timer = setTimeout(() => {
      this._timer = undefined;
      if (this._isPending) {
        this._isPending = false;
        this.note();
      }
    }, this.ms);
  }

  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _isPending = false;
  private _disposed = false;
}

/** What the panel knows of a run: it hears the run's news, and tells when it has changed itself. */
export abstract class SourceModel {
  constructor(protected readonly source: IRunSource) {
    source.changed.connect(this._onSource, this);
  }

  readonly changed = new Signal<this, void>(this);

  dispose(): void {
    this._isDisposed = true;
    this.gate.dispose();
    this.source.changed.disconnect(this._onSource, this);
    Signal.clearData(this);
  }

  protected abstract heard(change: SourceChange): void;

  protected emit(): void {
    this.changed.emit();
  }

  protected get isDisposed(): boolean {
    return this._isDisposed;
  }

  /** Tells of changes that may come in storms. */
  protected readonly gate: Coalesced = new Coalesced(() => this.emit());

  private _onSource(_: IRunSource, change: SourceChange): void {
    this.heard(change);
  }

  private _isDisposed = false;
}

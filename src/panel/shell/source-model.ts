import { Signal, type ISignal } from '@lumino/signaling';
import type { IRunSource, SourceChange } from '../../store/source';
import { Coalesced } from './coalesced';

/** What the panel knows of a run: it hears the run's news, and tells when it has changed itself. */
export abstract class SourceModel {
  constructor(protected readonly source: IRunSource) {
    source.changed.connect(this._onSource, this);
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** Let go of the source. Safe twice. */
  dispose(): void {
    this._isDisposed = true;
    this.gate.dispose();
    this.source.changed.disconnect(this._onSource, this);
    Signal.clearData(this);
  }

  protected abstract heard(change: SourceChange): void;

  protected emit(): void {
    this._changed.emit();
  }

  protected get isDisposed(): boolean {
    return this._isDisposed;
  }

  /** Tells of changes that may come in storms. */
  protected readonly gate: Coalesced = new Coalesced(() => this.emit());

  private _onSource(_: IRunSource, change: SourceChange): void {
    this.heard(change);
  }

  private readonly _changed = new Signal<this, void>(this);
  private _isDisposed = false;
}

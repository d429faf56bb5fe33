import { Signal, type ISignal } from '@lumino/signaling';
import {
  AlarmReader,
  firstAnomaly,
  isMuted,
  monitorSettings,
  mutesOf,
  type IAlarm
} from '../../store/alarms';
import type { IRunSource, SourceChange } from '../../store/source';
import { Coalesced } from '../shell/coalesced';

const READ_EVERY = 250;

/** The alarms of the chosen run that nobody muted; notes are none. */
export class AlarmModel {
  constructor(private readonly source: IRunSource) {
    source.changed.connect(this._onSource, this);
    this._gate.note();
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** In the order in which they happened. */
  get alarms(): readonly IAlarm[] {
    return this._alarms;
  }

  get first(): IAlarm | null {
    return firstAnomaly(this._alarms);
  }

  dispose(): void {
    this._disposed = true;
    this._gate.dispose();
    this.source.changed.disconnect(this._onSource, this);
    Signal.clearData(this);
  }

  private _onSource(_: IRunSource, change: SourceChange): void {
    const isNew = change.kind === 'hello' || (change.kind === 'rows' && change.stream === 'alarms');
    if (isNew) {
      this._reader.renew();
    }
    if (isNew || change.kind === 'configured') {
      this._gate.note();
    }
  }

  private async _read(): Promise<void> {
    // A run without alarms that can be read has none to tell of; its view says what is wrong.
    const all = await this._reader.read(this.source).catch(() => []);
    if (this._disposed) {
      return;
    }
    const mutes = mutesOf(monitorSettings(this.source));
    this._alarms = all.filter(each => each.severity !== 'note' && !isMuted(each, mutes));
    this._changed.emit();
  }

  private readonly _changed = new Signal<this, void>(this);
  private readonly _gate = new Coalesced(() => void this._read(), READ_EVERY);
  private readonly _reader = new AlarmReader();
  private _alarms: readonly IAlarm[] = [];
  private _disposed = false;
}

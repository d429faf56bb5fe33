import { AlarmReader, firstAnomaly, isMuted, monitorSettings, mutesOf, type IAlarm } from '../store/alarms';
import type { IRunSource, SourceChange } from '../../../store/source';
import { Coalesced } from '../../../panel/shell/coalesced';
import { SourceModel } from '../../../panel/shell/source-model';

const READ_EVERY = 250;

/** The alarms of the chosen run that nobody muted; notes are none. */
export class AlarmModel extends SourceModel {
  constructor(source: IRunSource) {
    super(source);
    this.gate.note();
  }

  /** In the order in which they happened. */
  get alarms(): readonly IAlarm[] {
    return this._alarms;
  }

  get first(): IAlarm | null {
    return firstAnomaly(this._alarms);
  }

  protected heard(change: SourceChange): void {
    const isNew = change.kind === 'hello' || (change.kind === 'rows' && change.stream === 'alarms');
    if (isNew) {
      this._reader.renew();
    }
    if (isNew || change.kind === 'configured') {
      this.gate.note();
    }
  }

  private async _read(): Promise<void> {
    // A run without alarms that can be read has none to tell of; its view says what is wrong.
    const all = await this._reader.read(this.source).catch(() => []);
    if (this.isDisposed) {
      return;
    }
    const mutes = mutesOf(monitorSettings(this.source));
    this._alarms = all.filter(each => each.severity !== 'note' && !isMuted(each, mutes));
    this.emit();
  }

  protected override readonly gate = new Coalesced(() => void this._read(), READ_EVERY);
  private readonly _reader = new AlarmReader();
  private _alarms: readonly IAlarm[] = [];
}

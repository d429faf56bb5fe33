import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { formatInteger } from '../../../charts/format';
import type { IPanelHost, Json } from '../../../panel/shell/panel-host';
import type { OpenPanelPart } from '../../../panel/shell/panel-part';
import { Coalesced, SourceModel } from '../../../panel/shell/source-model';
import { ReadOnce } from '../../../store/read-once';
import { type IRunSource, type SourceChange, isOver } from '../../../store/source';
import { said } from '../../../views/shared/said';
import { translateBy } from '../../../views/shared/translate';
import { alarmWords } from '../views/health-facts';
import type { IAlarm } from '../store/alarms';
import { firstAnomaly, follows, monitorSettings, mutesOf, readAlarms, unmuted } from '../store/alarms';

const READ_EVERY = 250;

/** The alarms of the chosen run that nobody muted; notes are none. */
class AlarmModel extends SourceModel {
  constructor(
    source: IRunSource,
    private readonly _share: (change: (before: Json | null) => Json | null) => void
  ) {
    super(source);
    this.gate.note();
  }

  get alarms(): readonly IAlarm[] {
    return this._alarms;
  }

  /** How many of them nobody looked at, in any window. */
  get unseen(): number {
    return Math.max(0, this._alarms.length - this._seen);
  }

  /** They were looked at. */
  see(): void {
    this._seen = this._alarms.length;
    this._share(() => ({ count: this._seen }));
    this.emit();
  }

  /** How many findings followed from them. */
  get followed(): number {
    return this._followed;
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
    const told = unmuted(all, mutesOf(monitorSettings(this.source)));
    this._alarms = told.filter(each => each.severity !== 'note');
    this._followed = told.filter(follows).length;
    this._share(before => {
      this._seen = before?.['count'] ?? 0;
      return null;
    });
    this.emit();
  }

  protected override readonly gate = new Coalesced(() => void this._read(), READ_EVERY);
  private readonly _reader = new ReadOnce(readAlarms);
  private _alarms: readonly IAlarm[] = [];
  private _followed = 0;
  private _seen = 0;
}

/** Least time between two notifications of a run, ms. */
const MINUTE = 60_000;

/**
 * Tells of the alarms of live runs: of the first at once, of later ones together, once a minute at most. All
 * windows of a page know what one of them told, also after a reload.
 */
class AlarmNews {
  /** @param isOn - Whether anything is reported; what comes meanwhile is not reported later. */
  constructor(
    private readonly host: Pick<IPanelHost, 'alarm' | 'share'>,
    private readonly isOn: () => boolean,
    private readonly trans: TranslationBundle
  ) {}

  /** Take what is known of a live run's alarms now; `open` shows them. */
  note(run: string, name: string, alarms: readonly IAlarm[], open: () => void): void {
    const [first] = alarms;
    if (first === undefined) {
      return;
    }
    this.host.share(`alarms of ${run}`, before => {
      const { count = 0, at = -Infinity } = before ?? {};
      const wait = at + MINUTE - Date.now();
      clearTimeout(this._timer);
      if (alarms.length <= count) {
        return null;
      }
      if (wait > 0) {
        this._timer = setTimeout(() => this.note(run, name, alarms, open), wait);
        return null;
      }
      if (this.isOn()) {
        const sentence = this._sentence(name, first, alarms.slice(count), count > 0);
        this.host.alarm(sentence, this.trans.__('Open Health'), open);
      }
      return { count: alarms.length, at: Date.now() };
    });
  }

  dispose(): void {
    clearTimeout(this._timer);
  }

  private _sentence(name: string, first: IAlarm, more: readonly IAlarm[], again: boolean): string {
    return again
      ? this.trans._n(
          '%2: one more alarm, at step %3.',
          '%2: %1 more alarms, the last at step %3.',
          more.length,
          name,
          formatInteger(more.at(-1)?.step ?? first.step)
        )
      : this.trans.__(
          '%1: first anomaly at step %2. %3',
          name,
          formatInteger(first.step),
          said(first.sentence, translateBy(this.trans))
        );
  }

  private _timer: ReturnType<typeof setTimeout> | undefined;
}

/** How many alarms the run has and what the first one says; opens its view. Nothing where there is none. */
function AlarmLine(props: {
  model: AlarmModel;
  trans: TranslationBundle;
  open: () => void;
}): React.ReactElement | null {
  const { model, trans, open } = props;
  const { alarms, first, followed, unseen } = model;
  const t = translateBy(trans);
  if (first === null) {
    return null;
  }
  const all = trans._n('%1 alarm', '%1 alarms', alarms.length);
  const count = unseen > 0 && unseen < alarms.length ? trans.__('%1 (%2 new)', all, unseen) : all;
  const text = followed === 0 ? count : trans.__('%1, and %2 that followed', count, formatInteger(followed));
  return (
    <p>
      <button
        type="button"
        className={`jp-MegalensNonFinite jp-MegalensAlarmLine${unseen === 0 ? ' jp-mod-seen' : ''}`}
        title={said(first.sentence, t)}
        onClick={open}
      >
        {trans.__('%1: first at step %2, %3', text, formatInteger(first.step), alarmWords(first, t))}
      </button>
    </p>
  );
}

/** The alarms of the chosen run in the panel, and notifications of those of a live one. */
export const openAlarmPart: OpenPanelPart = ({ host, trans, setting }) => {
  const show = (run: string): void => void host.openView(run, { view: 'health' });
  const news = new AlarmNews(host, () => setting('tellAlarms') !== false, trans);
  return {
    open: (id, source) => {
      const model = new AlarmModel(source, change => host.share(`seen of ${id}`, change));
      const look = (): void => {
        show(id);
        model.see();
      };
      model.changed.connect(() => {
        // A recorded run is no news, and nor is what a run that ended left behind.
        if (source.connection.kind === 'live' && !isOver(source)) {
          news.note(id, source.name, model.alarms, look);
        }
      });
      return {
        changed: model.changed,
        get alarms() {
          return model.unseen;
        },
        opened: view => {
          if (view === 'health') {
            model.see();
          }
        },
        render: () => <AlarmLine model={model} trans={trans} open={look} />,
        dispose: () => model.dispose()
      };
    },
    dispose: () => news.dispose()
  };
};

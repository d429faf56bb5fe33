import type { TranslationBundle } from '@jupyterlab/translation';
import { formatInteger } from '../../../charts/format';
import type { IAlarm } from '../store/alarms';

/** Least time between two notifications of a run, ms. */
const MINUTE = 60_000;

/** Tells of the alarms of live runs: of the first at once, of later ones together, once a minute at most. */
export class AlarmNews {
  /**
   * @param tell - Tells a sentence about a run.
   * @param isOn - Whether anything is told; what comes meanwhile is not told later.
   */
  constructor(
    private readonly tell: (run: string, sentence: string) => void,
    private readonly isOn: () => boolean,
    private readonly trans: TranslationBundle
  ) {}

  /** Take what is known of a live run's alarms now. */
  note(run: string, name: string, alarms: readonly IAlarm[]): void {
    const { trans } = this;
    const told = this._told.get(run);
    const [first] = alarms;
    if (first === undefined || (told !== undefined && alarms.length <= told.count)) {
      return;
    }
    const wait = told === undefined ? 0 : told.at + MINUTE - Date.now();
    clearTimeout(this._timer);
    if (wait > 0) {
      this._timer = setTimeout(() => this.note(run, name, alarms), wait);
      return;
    }
    this._told.set(run, { count: alarms.length, at: Date.now() });
    if (!this.isOn()) {
      return;
    }
    const more = alarms.length - (told?.count ?? 1);
    const last = alarms[alarms.length - 1] ?? first;
    this.tell(
      run,
      told === undefined
        ? trans.__('%1: first anomaly at step %2. %3', name, formatInteger(first.step), first.sentence)
        : trans._n(
            '%2: one more alarm, at step %3.',
            '%2: %1 more alarms, the last at step %3.',
            more,
            name,
            formatInteger(last.step)
          )
    );
  }

  dispose(): void {
    clearTimeout(this._timer);
  }

  private readonly _told = new Map<string, { readonly count: number; readonly at: number }>();
  private _timer: ReturnType<typeof setTimeout> | undefined;
}

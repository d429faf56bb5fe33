import type { HealthOptions } from '../../../../protocol/views.generated';
import { own } from '../../../../protocol/own';
import {
  firstAnomaly,
  isMuted,
  monitorSettings,
  mutesOf,
  AlarmReader,
  type IAlarm
} from '../../store/alarms';
import type { IRunSource, SourceChange } from '../../../../store/source';

/** All options of the view. */
export type HealthChoice = Readonly<Required<HealthOptions>>;

/** What a run's alarms say, under the options of a view. */
export interface IHealthFacts {
  /** Whether something judges the run, or did. */
  readonly isJudged: boolean;
  /** How many steps were judged; null where nobody said. */
  readonly judged: number | null;
  /** Those that nobody muted, in their order. */
  readonly alarms: readonly IAlarm[];
  /** Those that are muted. */
  readonly hidden: readonly IAlarm[];
  /** Those that the options choose. */
  readonly chosen: readonly IAlarm[];
  readonly first: IAlarm | null;
  /** The alarm whose tensor is drawn. */
  readonly shown: IAlarm | null;
}

/** Reads a run's alarms once for all parts of the view, and again when there are more. */
export class HealthReader {
  constructor(private readonly _source: IRunSource) {}

  /** Whether news of the run changes what is known of its health. */
  concerns(change: SourceChange): boolean {
    const concerned = change.kind === 'rows' && change.stream === 'alarms';
    if (concerned || change.kind === 'hello') {
      this._alarms.renew();
    }
    return concerned;
  }

  async facts(options: HealthChoice): Promise<IHealthFacts> {
    const all = await this._alarms.read(this._source);
    const state = own(this._source.status?.instruments, 'monitor');
    const judged = own((state ?? {}) as Record<string, unknown>, 'judged');
    const mutes = mutesOf(monitorSettings(this._source));
    const alarms = mutes.length === 0 ? all : all.filter(each => !isMuted(each, mutes));
    const first = firstAnomaly(alarms);
    const [from, to] = options.steps ?? [-Infinity, Infinity];
    const shown = alarms.find(
      each => each.name === options.name && (options.step === null || each.step === options.step)
    );
    return {
      judged: typeof judged === 'number' ? judged : (this._source.status?.step ?? null),
      isJudged: state !== undefined || monitorSettings(this._source) !== undefined || all.length > 0,
      alarms,
      hidden: mutes.length === 0 ? [] : all.filter(each => isMuted(each, mutes)),
      chosen: alarms.filter(
        each =>
          (options.severity === 'all' || each.severity === options.severity) &&
          (options.rule === null || each.rule === options.rule) &&
          each.step >= from &&
          each.step <= to
      ),
      first,
      shown: shown ?? first ?? alarms[0] ?? null
    };
  }

  private readonly _alarms = new AlarmReader();
}

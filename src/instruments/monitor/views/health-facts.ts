import type { ViewOptions, HealthOptions } from '../../../protocol/views.generated';
import { own } from '../../../protocol/records';
import type { IRunSource, SourceChange } from '../../../store/source';
import type { Loaded } from '../../../views/shared/content';
import { ViewModel, type IViewEnvironment } from '../../../views/shared/view-model';
import {
  moduleOf,
  SEVERITIES,
  type IAlarm,
  type Severity,
  firstAnomaly,
  isMuted,
  monitorSettings,
  mutesOf,
  unmuted,
  AlarmReader
} from '../store/alarms';
import { firstBad, type IFirstBad } from '../store/first-bad';

/** Alarms of one rule in one module. */
export interface IAlarmGroup {
  readonly rule: string;
  readonly module: string;
  readonly severity: Severity;
  readonly count: number;
  readonly last: number;
  readonly first: IAlarm;
}

/** Alarms by rule and module, the gravest first and among them the earliest. */
export function groupAlarms(alarms: readonly IAlarm[]): IAlarmGroup[] {
  const groups = new Map<string, IAlarmGroup>();
  for (const alarm of alarms) {
    const { rule, severity, step } = alarm;
    const module = moduleOf(alarm);
    const key = `${rule}\n${module}`;
    const group = groups.get(key);
    groups.set(key, {
      rule,
      module,
      severity: group && weight(group.severity) <= weight(severity) ? group.severity : severity,
      count: (group?.count ?? 0) + 1,
      first: group?.first ?? alarm,
      last: Math.max(group?.last ?? step, step)
    });
  }
  return [...groups.values()].sort(
    (a, b) =>
      weight(a.severity) - weight(b.severity) || a.first.step - b.first.step || a.first.place - b.first.place
  );
}

/** Index of a severity, the gravest 0. */
export const weight = (severity: Severity): number => SEVERITIES.indexOf(severity);

/** What all parts of the view share: one reading of the alarms. */
export abstract class HealthPane extends ViewModel {
  constructor(
    source: IRunSource,
    env: IViewEnvironment,
    protected readonly reader: HealthReader
  ) {
    super(source, env);
  }

  readonly subject = this.t('Health');

  concerns(change: SourceChange): boolean {
    // How long a run has been healthy is reported as well.
    return this.reader.concerns(change) || (change.kind === 'rows' && change.stream === 'scalars');
  }

  async load(): Promise<Loaded> {
    return this.show(await this.reader.facts(this.chosen));
  }

  protected abstract show(facts: IHealthFacts): Loaded;

  protected get chosen(): HealthChoice {
    return this.options as HealthChoice;
  }

  protected pick(options: Partial<HealthChoice>): void {
    this.choose(options as Partial<ViewOptions>);
  }
}

export type HealthChoice = Readonly<Required<HealthOptions>>;

export interface IHealthFacts {
  /** Whether something judges the run, or did. */
  readonly isJudged: boolean;
  /** How many steps were judged; null where it is unknown. */
  readonly judged: number | null;
  readonly alarms: readonly IAlarm[];
  /** Those that are muted. */
  readonly hidden: readonly IAlarm[];
  readonly chosen: readonly IAlarm[];
  readonly first: IAlarm | null;
  /** The first value that is not finite, where no alarm tells of one. */
  readonly bad: IFirstBad | null;
  /** The alarm whose tensor is drawn. */
  readonly shown: IAlarm | null;
}

/** Reads a run's alarms once for all parts of the view, and again when there are more. */
export class HealthReader {
  constructor(private readonly _source: IRunSource) {}

  concerns(change: SourceChange): boolean {
    const concerned = change.kind === 'rows' && change.stream === 'alarms';
    if (concerned || change.kind === 'hello') {
      this._alarms.renew();
    }
    if (change.kind === 'rows' || change.kind === 'status') {
      this._bad = null;
    }
    return concerned;
  }

  async facts(options: HealthChoice): Promise<IHealthFacts> {
    const all = await this._alarms.read(this._source);
    const state = own(this._source.status?.instruments, 'monitor');
    const judged = own((state ?? {}) as Record<string, unknown>, 'judged');
    const mutes = mutesOf(monitorSettings(this._source));
    const alarms = unmuted(all, mutes);
    const first = firstAnomaly(alarms);
    const [from, to] = options.steps ?? [-Infinity, Infinity];
    const shown = alarms.find(
      each => each.name === options.name && (options.step === null || each.step === options.step)
    );
    // A picture of alarms is better than none.
    const bad = all.length > 0 ? null : await (this._bad ??= firstBad(this._source).catch(() => null));
    return {
      bad,
      judged: typeof judged === 'number' ? judged : (this._source.status?.step ?? null),
      isJudged: state !== undefined || monitorSettings(this._source) !== undefined || all.length > 0,
      alarms,
      hidden: all.filter(each => isMuted(each, mutes)),
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
  private _bad: Promise<IFirstBad | null> | null = null;
}

import type { ViewOptions, HealthOptions } from '../../../protocol/views.generated';
import { readScalars } from '../../../aggregate';
import { groupMoments } from '../../../aggregate/group-moments';
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

/** The first value of a run that is not finite: its step, and the name of what holds it. */
interface IFirstBad {
  readonly step: number;
  readonly name: string;
}

/** Points of a scalar that are asked for: the first of every stretch that is not finite is among them. */
const POINTS = 400;

/**
 * Find the first value that is not finite among scalars and statistics of tensors, and what the hub saw of
 * traced ones; null where there is none. Nobody needs to have judged the run.
 */
async function firstBad(source: IRunSource): Promise<IFirstBad | null> {
  const found = [...hubSaw(source), ...(await inScalars(source)), ...(await inStatistics(source))];
  return found.reduce<IFirstBad | null>((best, each) => (best && best.step <= each.step ? best : each), null);
}

function hubSaw({ status }: IRunSource): IFirstBad[] {
  const { first, moments } = status?.nonfinite ?? {};
  return [
    ...(moments ? [moments.first] : []),
    ...(first ? [{ step: first.step, name: `${first.flag}, layer ${first.layer}` }] : [])
  ];
}

async function inScalars(source: IRunSource): Promise<IFirstBad[]> {
  const { lines } = await readScalars(source, { points: POINTS });
  return lines.flatMap(({ name, steps, values }) => {
    const step = steps[values.findIndex(value => !Number.isFinite(value))];
    return step === undefined ? [] : [{ step, name }];
  });
}

/** Of each statistic the total over all tensors tells the step, and its tensors at that step the name. */
async function inStatistics({ moments }: IRunSource): Promise<IFirstBad[]> {
  if (moments === undefined) {
    return [];
  }
  const { stats } = await moments.index();
  const found = await Promise.all(
    stats.map(async ({ stat }) => {
      const ask = { stat, statistic: 'nonfinite', mixed: true } as const;
      const total = await groupMoments(moments, { ...ask, by: [], points: POINTS });
      const step = total.step[total.nonFinite.findIndex(count => count !== 0)];
      if (step === undefined) {
        return [];
      }
      const at = await groupMoments(moments, { ...ask, by: ['name'], steps: [step, step] });
      const [name] = at.keys[at.group[at.nonFinite.findIndex(count => count !== 0)] ?? -1] ?? [];
      return [{ step, name: String(name ?? stat) }];
    })
  );
  return found.flat();
}

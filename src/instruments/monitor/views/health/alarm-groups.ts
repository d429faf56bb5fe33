import { moduleOf, SEVERITIES, type IAlarm, type Severity } from '../../store/alarms';

/** Alarms of one rule in one module. */
export interface IAlarmGroup {
  readonly rule: string;
  readonly module: string;
  /** The gravest among them. */
  readonly severity: Severity;
  readonly count: number;
  readonly last: number;
  /** The first of them. */
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

/** Place of a severity, the gravest 0. */
export const weight = (severity: Severity): number => SEVERITIES.indexOf(severity);

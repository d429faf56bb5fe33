import { asObject } from '../../../client/rest';
import type { IQuestion } from '../../../client/question';

/** Alarms of severity critical and warning that settings of the rules give in what is recorded of a run. */
export interface IAlarmCounts {
  /** Steps that were judged. */
  readonly steps: number;
  /** By rule; one that is not here gave none. */
  readonly rules: Readonly<Record<string, number>>;
  /** Whether all recorded steps were judged. */
  readonly whole: boolean;
}

/** How many alarms settings of the rules would have given in the recording. */
export const ALARM_COUNTS: IQuestion<{ readonly settings: object }, IAlarmCounts> = {
  name: 'alarms/count',
  inEngine: false,
  read: answer => {
    const { steps, rules, whole } = asObject(answer);
    const counts = Object.entries(asObject(rules)).map(
      ([rule, count]) => [rule, Number(count) || 0] as const
    );
    return { steps: Number(steps) || 0, rules: Object.fromEntries(counts), whole: whole !== false };
  }
};

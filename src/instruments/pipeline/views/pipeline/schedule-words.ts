import { MADE_SCHEDULES, scheduleTitle } from '../../plan';
import type { PipelineOptions } from '../../../../protocol/views.generated';
import type { Translate } from '../../../../views/shared/translate';

/** What can be chosen as schedule. */
export type Schedule = Required<PipelineOptions>['schedule'];

/** All that can be chosen, in the order of the list. */
export const SCHEDULES: readonly Schedule[] = ['best', 'measured', ...MADE_SCHEDULES, 'search'];

/** A schedule by the name that people know. */
export function scheduleWords(schedule: string, t: Translate): string {
  switch (schedule) {
    case 'best':
      return t('best');
    case 'measured':
      return t('Measured order');
    case 'search':
      return t('Searched order');
    default:
      return scheduleTitle(schedule);
  }
}

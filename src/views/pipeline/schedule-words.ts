import type { PipelineOptions } from '../../protocol/views.generated';
import { own } from '../../protocol/own';
import type { Translate } from '../shared/translate';

/** What can be chosen as schedule. */
export type Schedule = Required<PipelineOptions>['schedule'];

const NAMES: Readonly<Record<Exclude<Schedule, 'best' | 'measured' | 'search'>, string>> = {
  gpipe: 'GPipe',
  '1f1b': '1F1B',
  interleaved_1f1b: 'Interleaved 1F1B',
  depth_first: 'Depth-first',
  breadth_first: 'Breadth-first',
  megadpp: 'MegaDPP',
  zb_h1: 'ZB-H1',
  zb_h2: 'ZB-H2',
  zb_v: 'ZB-V',
  dualpipe: 'DualPipe',
  dualpipev: 'DualPipeV'
};

/** All that can be chosen, in the order of the list. */
export const SCHEDULES = ['best', 'measured', ...Object.keys(NAMES), 'search'] as readonly Schedule[];

/** A schedule by the name that people know. */
export function scheduleWords(schedule: string, t: Translate): string {
  const words: Readonly<Record<string, string>> = {
    ...NAMES,
    best: t('best'),
    measured: t('as measured'),
    search: t('search')
  };
  return own(words, schedule) ?? schedule;
}

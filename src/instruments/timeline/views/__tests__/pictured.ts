import type { MemoryRun } from '../../../../store/__tests__/memory-run';
import { fullRun, type Pictured } from '../../../../views/__tests__/pictured';
import { timelineAnswer } from '../../client/__tests__/timeline-answer';
import { TIMELINE, timelineOf } from '../../client/timeline-api';

/** Every view of spans. */
export const PICTURED: Pictured = [['timeline', { view: 'timeline' }, 1]];

/** A run that recorded spans beside everything else. */
export function picturedRun(): MemoryRun {
  const run = fullRun();
  run.answerTo(TIMELINE, () => Promise.resolve(timelineOf(timelineAnswer())));
  return run;
}

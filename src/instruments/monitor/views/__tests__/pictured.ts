import type { MemoryRun } from '../../../../store/__tests__/memory-run';
import { fullRun, type Pictured } from '../../../../views/__tests__/pictured';
import { alarm, alarmRow } from '../../__tests__/alarm-rows';

/** Every view of alarms. */
export const PICTURED: Pictured = [['health', { view: 'health' }, 2]];

/** A run that has alarms beside everything else. */
export function picturedRun(): MemoryRun {
  const run = fullRun();
  alarm(
    run,
    alarmRow({ step: 3 }),
    alarmRow({ step: 3, name: 'decoder.layers.0.mlp.linear_fc1.weight', place: 5 })
  );
  return run;
}

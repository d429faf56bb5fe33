import type { WrittenRun } from '../../../../store/__tests__/written-run';
import { fullRun, type Pictured } from '../../../../views/__tests__/pictured';
import { textRows } from './generated-text';

/** Views of a text. */
export const PICTURED: Pictured = [
  ['tokens', { view: 'tokens' }, 1],
  ['tokens up to a position', { view: 'tokens', color: 'surprise', position: 2 }, 1]
];

/** A run that wrote a text beside everything else. */
export function picturedRun(): WrittenRun {
  const run = fullRun();
  run.generated(1, { prompts: ['Once'], tokens: 3 }, { tokens: 3, seconds: 0.1 });
  run.write('tokens', ...textRows([['Once'], [' upon', 0.9], ['\n', 0.1], ['漢', NaN]], 1));
  return run;
}

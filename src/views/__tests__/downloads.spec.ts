/** @jest-environment ./jest.environment.node.js */

import type { StatisticsOptions } from '../../protocol/views.generated';
import type { MomentRowsRequest } from '../../protocol/requests.generated';
import type { IMomentRows } from '../../store/row-moments';
import { MemoryMoments, grads } from '../../store/__tests__/memory-moments';
import { loadModel } from './model';
import { MemoryRun } from '../../store/__tests__/memory-run';

/** What the table saves when a button is pressed: name of the file, and the distinct steps in it. */
async function saved(
  run: MemoryRun,
  label: string,
  options: Partial<StatisticsOptions>
): Promise<[string, string[]]> {
  const files: [string, string][] = [];
  const { loaded } = await loadModel(
    run,
    { view: 'statistics', kind: 'table', ...options },
    (name, _, text) => {
      files.push([name, text]);
    }
  );
  const notes = ('content' in loaded && loaded.content.notes) || [];
  await notes.find(({ action }) => action?.label === label)?.action?.run();
  for (let turn = 0; turn < 100 && files.length === 0; turn += 1) {
    await new Promise(resolve => setTimeout(resolve));
  }
  const [[name, text] = ['', '']] = files;
  const [head = '', ...lines] = text.trim().split('\n');
  const at = head.split(',').indexOf('step');
  return [name, [...new Set(lines.map(line => line.split(',')[at] ?? ''))]];
}

/** Statistics of which every step is brought, whatever is asked: as the file of a report does. */
class WholeMoments extends MemoryMoments {
  override rows({ stats }: MomentRowsRequest): Promise<IMomentRows | null> {
    return super.rows({ stats });
  }
}

it.each([
  ['Download as CSV', 'gpt-demo-grad-groups.csv'],
  ['Download these rows as CSV', 'gpt-demo-grad-rows.csv']
])('%s holds the chosen steps, or all', async (label, file) => {
  const source = new MemoryRun();
  source.moments = new WholeMoments();
  source.log(...grads(2, 6));
  expect(await saved(source, label, {})).toEqual([file, ['1', '2', '3', '4', '5', '6']]);
  expect(await saved(source, label, { steps: [2, 4] })).toEqual([file, ['2', '3', '4']]);
});

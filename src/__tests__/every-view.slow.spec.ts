import { VIEWS } from '../protocol/view-table.generated';
import type { ViewOptions } from '../protocol/views.generated';
import { HELLO } from '../store/__tests__/memory-run';
import { WrittenRun } from '../store/__tests__/written-run';
import { fullRun } from '../views/__tests__/pictured';
import { mountView } from '../views/registry';

afterEach(() => document.body.replaceChildren());

/** Runs of one process: one that has just begun and traces nothing, and one that has something of everything. */
const RUNS: Readonly<Record<string, () => WrittenRun>> = {
  'has just begun': () => new WrittenRun({ ...HELLO, config: { flags: {} } }),
  'is recorded': fullRun
};

const NAMES = Object.keys(VIEWS) as (keyof typeof VIEWS)[];
const CASES = Object.keys(RUNS).flatMap(run => NAMES.map(name => [name, run] as const));

it.each(CASES)('%s opens in no error state on a run of one process that %s', async (name, which) => {
  const node = document.createElement('div');
  document.body.append(node);
  const { needs } = VIEWS[name];
  const options = { view: name, ...(needs.flag ? { flag: 'MLP1_mat_mul' } : {}) } as ViewOptions;
  const view = await mountView(node, (RUNS[which] as () => WrittenRun)(), options, { renderer: 'svg' });
  await view.settled();
  const errors = [...node.querySelectorAll('[data-kind="error"]')].map(each => each.textContent);
  expect(errors).toEqual([]);
  // What shows no picture says why.
  expect(node.textContent).toMatch(/\p{L}{3}/u);
  view.dispose();
});

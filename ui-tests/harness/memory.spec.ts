import type { ViewOptions } from '../../src/protocol/views.generated';
import { expect, test } from './test';

/** For a person who wants to see an hour pass: minutes that the views follow the run. */
const MINUTES = Number(process.env['MEGALENS_MINUTES'] ?? 0);
/** Updates of each view, a step each, before the first count and between the two. */
const UPDATES = 60;
const VIEWS: ViewOptions[] = [
  { view: 'heatmap', flag: 'MLP1_mat_mul', layers: '1' },
  { view: 'trend', flag: 'MLP1_mat_mul' },
  { view: 'scalars' },
  { view: 'history', flag: 'MLP1_mat_mul' },
  { view: 'timeline', find: 'all_reduce' },
  { view: 'pipeline', kind: 'plan' }
];

test('what live views hold stays bounded while they follow a run', async ({ blank: _, kept: page }) => {
  test.setTimeout(120_000 + 75_000 * MINUTES);
  await page.evaluate(() => window.harness.clear());
  await page.setViewportSize({ width: 900, height: 1400 });
  const shape = { layers: 2, positions: 16, tiles: 16, steps: 40, bound: 40, pipeline: true };
  await page.evaluate(([views, run]) => window.harness.showTogether(views, run), [VIEWS, shape] as const);
  const session = await page.context().newCDPSession(page);
  /** Let steps arrive, each drawn by all views, and count what is held then. */
  const counted = async (updates: number): Promise<Record<'heap' | 'listeners' | 'nodes', number>> => {
    await page.evaluate(async count => {
      for (let at = 0; at < count; at += 1) {
        window.harness.run?.advance();
        await new Promise(done => setTimeout(done, 100));
        await window.harness.allSettled();
      }
    }, updates);
    await session.send('HeapProfiler.collectGarbage');
    await session.send('HeapProfiler.collectGarbage');
    const { nodes, jsEventListeners: listeners } = await session.send('Memory.getDOMCounters');
    const { usedSize: heap } = await session.send('Runtime.getHeapUsage');
    return { nodes, listeners, heap };
  };
  const all = [await counted(UPDATES)];
  const start = Date.now();
  do {
    all.push(await counted(UPDATES));
  } while (Date.now() - start < 60_000 * MINUTES);
  if (MINUTES > 0) {
    const mb = (bytes: number): string => (bytes / 2 ** 20).toFixed(2);
    console.log(all.map(({ nodes, listeners, heap }) => `${nodes} ${listeners} ${mb(heap)}`).join('\n'));
  }
  // In its first minutes a page still compiles and optimises what it runs.
  const [before, after] = [all[Math.floor(all.length / 3)]!, all.at(-1)!];
  // Letters of labels come and go with the numbers on an axis.
  expect(after.nodes - before.nodes).toBeLessThan(60);
  expect(after.listeners - before.listeners).toBeLessThan(20);
  expect(after.heap / before.heap).toBeLessThan(1.1);
});

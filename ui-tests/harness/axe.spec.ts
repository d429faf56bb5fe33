import type { Page } from '@playwright/test';
import type { ViewOptions } from '../../src/protocol/views.generated';
import type { ConnectionState } from '../../src/store/source';
import { violations } from '../axe.cjs';
import { picture } from '../picture';
import { breaksNoRule, rules } from './rules';
import { SMALL_RUN } from './small-run';
import type { ISyntheticShape } from './source';
import { expect, setTheme, test } from './test';
import { showWidget } from './widget-page';

const SHAPE: ISyntheticShape = {
  ...SMALL_RUN,
  events: [
    { kind: 'pause', first: 30, last: 30, text: 'paused by ada' },
    { kind: 'perturbation', first: 55, last: 70, text: 'Gaussian noise on layers 1 to 2' }
  ]
};
const HEATMAP: ViewOptions = { view: 'heatmap', flag: 'MLP1_mat_mul', layers: 'all' };
const TREND: ViewOptions = { view: 'trend', flag: 'MLP1_mat_mul' };
const EMPTY: readonly ViewOptions[] = [
  { view: 'heatmap', flag: 'HiddenStates' },
  { view: 'trend', flag: 'Router' },
  { view: 'history', flag: 'HiddenStates' },
  { view: 'statistics', stat: 'residual' },
  { view: 'statistics', kind: 'table', derive: 'share = nonsense(' }
];
const CONNECTIONS: readonly ConnectionState[] = [
  { kind: 'stale', since: 0 },
  { kind: 'reconnecting', attempt: 2, message: '' },
  { kind: 'closed', reason: 'finished', message: '' },
  { kind: 'closed', reason: 'gone', message: '' },
  { kind: 'closed', reason: 'version', message: 'Expected megalens.v2, got megalens.v9.' }
];

const show = (page: Page, options: ViewOptions): Promise<void> =>
  page.evaluate(([view, shape]) => window.harness.show(view, shape), [options, SHAPE] as const);

/** What is shown breaks no rule in either theme. */
async function isFine(page: Page, what: string): Promise<void> {
  for (const theme of ['light', 'dark'] as const) {
    await setTheme(page, theme);
    await breaksNoRule(page, theme, what);
  }
  await setTheme(page, 'light');
}

test('views without a picture, or with a broken link, break no rule of axe', async ({ page }) => {
  test.setTimeout(120_000);
  for (const options of EMPTY) {
    await show(page, options);
    await isFine(page, JSON.stringify(options));
  }
  await show(page, HEATMAP);
  for (const connection of CONNECTIONS) {
    await page.evaluate(state => window.harness.run?.connect(state), connection);
    await page.evaluate(() => window.harness.view?.settled());
    await expect(page.locator('.jp-MegalensBanner')).toBeVisible();
    await isFine(page, JSON.stringify(connection));
  }
  for (const reason of ['Error', 'TypeError'] as const) {
    await show(page, TREND);
    await page.evaluate(name => {
      const fails = (): Promise<never> => Promise.reject(new { Error, TypeError }[name]('Nothing came.'));
      Object.assign(window.harness.run ?? {}, { tensors: fails, steps: fails, shapeOf: fails });
      return window.harness.view?.update({ layers: '1' });
    }, reason);
    await expect(page.getByRole('alert')).toContainText('Nothing came.');
    await isFine(page, reason);
  }
});

for (const theme of ['light', 'dark'] as const) {
  test(`panel and table of runs break no rule of axe, ${theme}`, async ({ blank: page }) => {
    await page.setViewportSize({ width: 300, height: 900 });
    await showWidget(page, 'fit-page', theme);
    await expect(page.locator('.jp-MegalensFigures-loss')).toBeVisible();
    expect.soft(await violations(page, ['.jp-MegalensPanel'], rules(theme)), 'panel').toEqual([]);
    // What opens has parts that open.
    for (let depth = 0; depth < 3; depth += 1) {
      await page
        .locator('.jp-MegalensPanel [aria-expanded="false"]')
        .evaluateAll(nodes => nodes.forEach(node => (node as HTMLElement).click()));
    }
    await picture(page, `panel-open-${theme}`, { fullPage: true });
    expect.soft(await violations(page, ['.jp-MegalensPanel'], rules(theme)), 'panel, all open').toEqual([]);
    await page.evaluate(() => (location.hash = 'table'));
    await page.setViewportSize({ width: 1000, height: 400 });
    await showWidget(page, 'fit-page', theme);
    await expect(page.locator('tbody tr')).toHaveCount(5);
    for (const at of [0, 1]) {
      await page.locator('tbody input').nth(at).check();
    }
    await expect(page.locator('.jp-MegalensCompare')).toBeVisible();
    await picture(page, `runs-table-${theme}`);
    expect.soft(await violations(page, ['.jp-MegalensRunsTable'], rules(theme)), 'table').toEqual([]);
    await page.evaluate(() => (location.hash = ''));
    await showWidget(page, 'panel-page', theme);
    await expect(page.locator('.jp-mod-fault').getByRole('alert')).toBeVisible();
    expect.soft(await violations(page, ['.jp-MegalensPanel'], rules(theme)), 'fault').toEqual([]);
  });
}

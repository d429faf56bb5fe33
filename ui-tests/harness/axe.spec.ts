import type { Page } from '@playwright/test';
import type { ViewOptions } from '../../src/protocol/views.generated';
import type { ConnectionState } from '../../src/store/source';
import { violations } from '../axe.cjs';
import { picture } from '../picture';
import { syntheticAlarms } from './alarms';
import { SMALL_RUN } from './small-run';
import type { ISyntheticShape } from './source';
import { expect, test } from './test';
import { showWidget } from './widget-page';

const SHAPE: ISyntheticShape = {
  ...SMALL_RUN,
  alarms: syntheticAlarms(),
  events: [
    { kind: 'pause', first: 30, last: 30, text: 'paused by ada' },
    { kind: 'perturbation', first: 55, last: 70, text: 'Gaussian noise on layers 1 to 2' }
  ]
};
const HEATMAP: ViewOptions = { view: 'heatmap', flag: 'MLP1_mat_mul', layers: 'all' };
const TREND: ViewOptions = { view: 'trend', flag: 'MLP1_mat_mul' };
/** Every view as it stands alone; those of the explorer in its kinds. */
const VIEWS: readonly ViewOptions[] = [
  HEATMAP,
  TREND,
  { ...TREND, kind: 'heatmap' },
  { view: 'history', flag: 'MLP1_mat_mul', layer: 2, step: 62 },
  { view: 'scalars', names: ['loss', 'held_out_loss', 'grad_norm'], smoothing: 20 },
  { view: 'moments', kind: 'overview' },
  { view: 'health' },
  { view: 'timeline' },
  { view: 'timeline', kind: 'map' },
  { view: 'pipeline', activation_mb: 100 },
  { view: 'split' },
  { view: 'moments', kind: 'lines', by: ['layer'], statistic: 'kurtosis' },
  { view: 'moments', kind: 'layers', by: ['layer', 'item_type'], statistic: 'rms' },
  { view: 'moments', kind: 'layer_map', statistic: 'rms' },
  { view: 'moments', kind: 'item_map', statistic: 'kurtosis' },
  { view: 'moments', kind: 'map', columns: 'rank', colors: 'sigma', cells: ['[1,0]'] },
  { view: 'moments', kind: 'tensors', where: { name: 'fc1' } },
  { view: 'moments', kind: 'table', statistic: 'std' }
];
const EMPTY: readonly ViewOptions[] = [
  { view: 'heatmap', flag: 'HiddenStates' },
  { view: 'trend', flag: 'Router' },
  { view: 'history', flag: 'HiddenStates' },
  { view: 'moments', stat: 'residual' },
  { view: 'moments', kind: 'table', derive: 'share = nonsense(' }
];
const CONNECTIONS: readonly ConnectionState[] = [
  { kind: 'stale', since: 0 },
  { kind: 'reconnecting', attempt: 2, message: '' },
  { kind: 'closed', reason: 'finished', message: '' },
  { kind: 'closed', reason: 'gone', message: '' },
  { kind: 'closed', reason: 'version', message: 'Expected megalens.v2, got megalens.v9.' }
];

type Theme = 'light' | 'dark';

const open = (page: Page, theme: Theme): Promise<void> =>
  page.evaluate(name => window.harness.theme(name), theme);

const show = (page: Page, options: ViewOptions, other?: ISyntheticShape): Promise<void> =>
  page.evaluate(([view, shape, second]) => window.harness.show(view, shape, second ?? undefined), [
    options,
    SHAPE,
    other ?? null
  ] as const);
const settled = (page: Page): Promise<void> => page.evaluate(() => window.harness.view?.settled());

/** What a theme can break; all else is the same in both. */
const rules = (theme: Theme): readonly string[] | undefined =>
  theme === 'dark' ? ['color-contrast'] : undefined;

for (const theme of ['light', 'dark'] as const) {
  /** Nothing of the view that is shown breaks a rule. */
  const isFine = async (page: Page, what: string): Promise<void> =>
    expect.soft(await violations(page, ['#view'], rules(theme)), what).toEqual([]);

  test(`drawn views break no rule of axe, ${theme}`, async ({ page }) => {
    test.setTimeout(120_000);
    await open(page, theme);
    for (const options of VIEWS) {
      await show(page, options);
      await isFine(page, JSON.stringify(options));
      for (const name of [/^more.*▾$/i, 'More actions']) {
        const button = page.getByRole('button', { name }).first();
        if (await button.isVisible()) {
          await button.click();
          await isFine(page, `${JSON.stringify(options)}, ${name} open`);
        }
      }
    }
  });

  test(`views without a picture, or with a broken link, break no rule of axe, ${theme}`, async ({ page }) => {
    test.setTimeout(120_000);
    await open(page, theme);
    for (const options of EMPTY) {
      await show(page, options);
      await isFine(page, JSON.stringify(options));
    }
    for (const connection of CONNECTIONS) {
      await show(page, HEATMAP);
      await page.evaluate(state => window.harness.run?.connect(state), connection);
      await settled(page);
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
    for (const at of [0, 1]) {
      await page.locator('tbody input').nth(at).check();
    }
    await expect(page.locator('.jp-MegalensCompare')).toBeVisible();
    expect.soft(await violations(page, ['.jp-MegalensRunsTable'], rules(theme)), 'table').toEqual([]);
    await page.evaluate(() => (location.hash = ''));
    await showWidget(page, 'panel-page', theme);
    await expect(page.locator('.jp-mod-fault').getByRole('alert')).toBeVisible();
    expect.soft(await violations(page, ['.jp-MegalensPanel'], rules(theme)), 'fault').toEqual([]);
  });
}

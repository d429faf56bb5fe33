import type { ViewOptions } from '../../src/protocol/views.generated';
import { SHOWN, picture } from '../picture';
import { syntheticAlarms } from './alarms';
import { SMALL_RUN } from './small-run';
import { expect, setTheme, test } from './test';

const flag = 'MLP1_mat_mul';
const VIEWS: Record<string, ViewOptions> = {
  overview: { view: 'overview' },
  heatmap: { view: 'heatmap', flag, layers: 'all' },
  trend: { view: 'trend', flag },
  'trend-map': { view: 'trend', flag, kind: 'heatmap' },
  history: { view: 'history', flag },
  scalars: { view: 'scalars' },
  'scalars-page': { view: 'scalars', kind: 'page' },
  statistics: { view: 'statistics', by: ['layer'] },
  'statistics-map': { view: 'statistics', kind: 'layer_map' },
  'statistics-layers': { view: 'statistics', kind: 'layers' },
  'statistics-table': { view: 'statistics', kind: 'table' },
  health: { view: 'health' },
  timeline: { view: 'timeline' },
  pipeline: { view: 'pipeline' },
  split: { view: 'split' },
  tokens: { view: 'tokens' },
  attention: { view: 'attention' },
  'attention-one': { view: 'attention', layers: '0', heads: '0' },
  heads: { view: 'attention', kind: 'heads', layers: 'all', heads: 'all' },
  projection: { view: 'projection', flag: 'HiddenStates' },
  lens: { view: 'lens' }
};
/** Those of a text that a model wrote. */
const WRITTEN: readonly string[] = ['tokens', 'attention', 'projection', 'lens'];

/** Controls, words and pictures that stand out of the page at either side, and do not scroll within a frame of their own. */
const OUTSIDE = `[...document.querySelectorAll('button, select, input, canvas, p, h2')]
  .filter(node => node.checkVisibility() && !node.closest('.jp-MegalensTable, .jp-MegalensHidden'))
  .filter(node => { const { left, right } = node.getBoundingClientRect(); return left < -1 || right > innerWidth + 1; })
  .map(node => node.outerHTML.slice(0, 160))`;
/** Steps that a slider names and that are cut. */
const CUT = `[...document.querySelectorAll('.jp-MegalensSteps > output')]
  .filter(node => node.checkVisibility() && /^step/.test(node.textContent) && node.scrollWidth > node.clientWidth)
  .map(node => node.textContent)`;

for (const [name, options] of Object.entries(VIEWS)) {
  test(`${name} fits in 280 pixels: nothing is cut or scrolls sideways, and all controls can be reached`, async ({
    page
  }) => {
    await page.setViewportSize({ width: 280, height: 900 });
    await page.evaluate(
      ([view, shape, isWritten]) =>
        isWritten ? window.harness.showWritten(view) : window.harness.show(view, shape),
      [
        options,
        { ...SMALL_RUN, alarms: syntheticAlarms(), moments: { layers: 4, steps: 30 } },
        WRITTEN.includes(options.view)
      ] as const
    );
    await expect(page.locator('.jp-MegalensView').first(), name).toHaveAttribute('data-state', 'drawn');
    for (const theme of SHOWN) {
      await setTheme(page, theme);
      await picture(page, `narrow-${name}-${theme}`);
    }
    await expect
      .poll(() => page.evaluate(() => document.documentElement.scrollWidth - innerWidth), { message: name })
      .toBeLessThanOrEqual(0);
    await expect.poll(() => page.evaluate(OUTSIDE), { message: name }).toEqual([]);
    await expect.poll(() => page.evaluate(CUT), { message: name }).toEqual([]);
    const more = page
      .locator('.jp-MegalensToolbar')
      .first()
      .getByRole('button', { name: /more ▾/ });
    if (await more.isVisible()) {
      await more.click();
      await expect.poll(() => page.evaluate(OUTSIDE), { message: `${name}, unfolded` }).toEqual([]);
      await page.keyboard.press('Escape');
    }
  });
}

import type { ViewOptions } from '../../src/protocol/views.generated';
import { picture } from '../picture';
import type { ISyntheticShape } from './source';
import { expect, test } from './test';

const SHAPE: ISyntheticShape = { layers: 4, positions: 64, tiles: 48, steps: 20 };
const VIEWS: ViewOptions[] = [
  { view: 'heatmap', flag: 'MLP1_mat_mul', layers: '0' },
  { view: 'trend', flag: 'MLP1_mat_mul' },
  { view: 'history', flag: 'MLP1_mat_mul' }
];

for (const options of VIEWS) {
  for (const [theme, width] of [
    ['light', 480],
    ['dark', 480],
    ['light', 1280]
  ] as const) {
    test(`the toolbar of ${options.view} is one line, ${width} px, ${theme}`, async ({ page }) => {
      await page.setViewportSize({ width, height: 560 });
      await page.evaluate(name => window.harness.theme(name), theme);
      await page.evaluate(async ([view, size]) => window.harness.show(view, size), [options, SHAPE] as const);
      const bar = page.locator('.jp-MegalensToolbar').first();
      await expect.poll(async () => (await bar.boundingBox())?.height).toBeLessThan(42);
      await expect
        .poll(() => bar.evaluate(node => node.scrollWidth - node.clientWidth))
        .toBeLessThanOrEqual(0);
      const more = bar.getByRole('button', { name: /more ▾/ });
      if (width < 1000) {
        await more.click();
        const scale = bar.locator('.jp-MegalensFold-content select').last();
        await expect(scale).toBeVisible();
        await picture(page, `toolbar-${options.view}-${theme}`);
        await page.keyboard.press('Escape');
        await expect(scale).toBeHidden();
        await page.setViewportSize({ width: 1280, height: 560 });
      }
      await picture(page, `toolbar-${options.view}-wide-${theme}`);
    });
  }
}

import type { ViewOptions } from '../../src/protocol/views.generated';
import { SHOWN, picture } from '../picture';
import type { ISyntheticShape } from './source';
import { expect, setTheme, test } from './test';

const SHAPE: ISyntheticShape = { layers: 4, positions: 64, tiles: 48, steps: 20 };
const VIEWS: ViewOptions[] = [
  { view: 'heatmap', flag: 'MLP1_mat_mul', layers: '0' },
  { view: 'trend', flag: 'MLP1_mat_mul' },
  { view: 'history', flag: 'MLP1_mat_mul' }
];

for (const options of VIEWS) {
  test(`the toolbar of ${options.view} is one line, at 480 pixels and at 1280`, async ({ page }) => {
    await page.setViewportSize({ width: 480, height: 560 });
    await page.evaluate(async ([view, size]) => window.harness.show(view, size), [options, SHAPE] as const);
    const bar = page.locator('.jp-MegalensToolbar').first();
    for (const theme of SHOWN) {
      await setTheme(page, theme);
      for (const width of [480, 1280]) {
        await page.setViewportSize({ width, height: 560 });
        await expect.poll(async () => (await bar.boundingBox())?.height).toBeLessThan(42);
        await expect
          .poll(() => bar.evaluate(node => node.scrollWidth - node.clientWidth))
          .toBeLessThanOrEqual(0);
        if (width < 1000) {
          await bar.getByRole('button', { name: /more ▾/ }).click();
          const scale = bar.locator('.jp-MegalensFold-content select').last();
          await expect(scale).toBeVisible();
          await picture(page, `toolbar-${options.view}-${theme}`);
          await page.keyboard.press('Escape');
          await expect(scale).toBeHidden();
        }
      }
      await picture(page, `toolbar-${options.view}-wide-${theme}`);
    }
  });
}

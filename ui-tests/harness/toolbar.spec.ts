import type { ViewOptions } from '../../src/protocol/views.generated';
import { SHOWN, picture } from '../picture';
import type { ISyntheticShape } from './source';
import { SMALL_RUN } from './small-run';
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

const USED: ViewOptions[] = [
  { view: 'pipeline' },
  { view: 'split', devices: 2 },
  { view: 'moments' },
  { view: 'timeline' },
  { view: 'trend', flag: 'MLP1_mat_mul' }
];

for (const options of USED) {
  test(`a control of ${options.view} keeps its place while it is used, and so do those before it`, async ({
    page
  }) => {
    await page.setViewportSize({ width: 1900, height: 700 });
    await page.evaluate(([view, run]) => window.harness.show(view, run), [options, SMALL_RUN] as const);
    const bar = page.locator('.jp-MegalensToolbar').first();
    const places = (): Promise<Record<string, number>> =>
      bar.evaluate(node =>
        Object.fromEntries(
          [...node.querySelectorAll<HTMLElement>('[data-control]')].map(each => [
            each.dataset['control']!,
            Math.round(each.getBoundingClientRect().left)
          ])
        )
      );
    const before = await places();
    const selects = await bar.locator('[data-control] select').count();
    for (let at = 0; at < selects; at += 1) {
      const select = bar.locator('[data-control] select').nth(at);
      const own = await select.evaluate(
        node => node.closest<HTMLElement>('[data-control]')!.dataset['control']!
      );
      for (const value of await select.evaluate((node: HTMLSelectElement) => [
        ...[...node.options].filter(({ disabled }) => !disabled).map(each => each.value),
        node.value
      ])) {
        await select.selectOption(value);
        await page.evaluate(() => window.harness.view?.settled());
        const now = await places();
        // Behind it others may come and go.
        const kept = Object.keys(now).filter(id => (before[id] ?? Infinity) <= before[own]!);
        expect(kept.map(id => [id, now[id]])).toEqual(kept.map(id => [id, before[id]]));
      }
    }
  });
}

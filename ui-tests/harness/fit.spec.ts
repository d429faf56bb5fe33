import type { Page } from '@playwright/test';
import { SHOWN, picture } from '../picture';
import { expect, test } from './test';
import { showWidget } from './widget-page';

/** What is left of 1280 x 720 for JupyterLab's sidebar. */
const SIDEBAR = { width: 250, height: 640 };

/** Rectangles of everything in the panel, in reading order. */
const boxes = (page: Page): Promise<string[]> =>
  page.locator('.jp-MegalensPanel :is(button, input, label, li, h3, .jp-MegalensTerm)').evaluateAll(nodes =>
    nodes.map(node => {
      const { x, y, width, height } = node.getBoundingClientRect();
      return `${node.nodeName} ${Math.round(x)} ${Math.round(y)} ${Math.round(width)} ${Math.round(height)}`;
    })
  );

for (const theme of SHOWN) {
  test(`the panel fits in JupyterLab’s default width, ${theme}`, async ({ blank: page }) => {
    await page.setViewportSize(SIDEBAR);
    await showWidget(page, 'fit-page', theme);
    await expect(page.locator('.jp-MegalensFigures-loss')).toBeVisible();
    await picture(page, `panel-250-${theme}`);
    const panel = page.locator('.jp-MegalensPanel');
    await expect.poll(() => panel.evaluate(node => node.scrollWidth - node.clientWidth)).toBe(0);
    // Nothing of a line is cut off at the right.
    const right = await page
      .locator('.jp-MegalensPanel button')
      .evaluateAll(nodes => Math.max(...nodes.map(node => node.getBoundingClientRect().right)));
    expect(right).toBeLessThanOrEqual(SIDEBAR.width);
    // Apply is in sight wherever the panel is scrolled to; views stand above what is traced.
    for (const to of [0, 1e6]) {
      await panel.evaluate((node, top) => node.scrollTo(0, top), to);
      await expect(page.getByRole('button', { name: 'Apply', exact: true })).toBeInViewport({ ratio: 1 });
    }
    await picture(page, `panel-250-foot-${theme}`);
    const [views, trace] = await Promise.all(
      ['views', 'trace'].map(name => page.locator(`.jp-mod-${name}`).boundingBox())
    );
    expect(views!.y).toBeLessThan(trace!.y);
  });
}

test('nothing in the panel moves while numbers change', async ({ blank: page }) => {
  await page.setViewportSize(SIDEBAR);
  await showWidget(page, 'fit-page', 'light');
  await expect(page.locator('.jp-MegalensFigures-loss')).toContainText('1.62');
  const before = await boxes(page);
  for (const [step, loss, overhead] of [
    [1241, 1.6, 1.2],
    [1249, 2, 0.9],
    [1311, 0.917, 10.1]
  ]) {
    await page.evaluate(`show(${step}, ${loss}, ${overhead})`);
    await expect(page.locator('.jp-MegalensFigures-loss')).toContainText(String(loss));
    expect(await boxes(page)).toEqual(before);
  }
});

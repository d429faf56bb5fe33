import type { Locator, Page } from '@playwright/test';
import type { ViewOptions } from '../../src/protocol/views.generated';
import { SHOWN, picture } from '../picture';
import type { ISyntheticShape } from './source';
import { expect, test } from './test';

const SHAPE: ISyntheticShape = { layers: 4, positions: 64, tiles: 48, steps: 120 };
const VIEWS: ViewOptions[] = [
  { view: 'trend', flag: 'MLP1_mat_mul' },
  { view: 'scalars' },
  { view: 'heatmap', flag: 'MLP1_mat_mul', layers: 'all' }
];
const [TREND, SCALARS, HEATMAP] = [0, 1, 2];

test.use({ viewport: { width: 1000, height: 1500 } });

test.beforeEach(async ({ page }) => {
  await page.evaluate(([views, shape]) => window.harness.showTogether(views, shape), [VIEWS, SHAPE] as const);
});

const plot = (page: Page, view: number, facet = 0) =>
  page.evaluate(([at, place]) => window.harness.plotOf(at, place), [view, facet] as const);
const settled = (page: Page): Promise<void> => page.evaluate(() => window.harness.allSettled());
const view = (page: Page, at: number): Locator => page.locator('.jp-MegalensView').nth(at);
const title = (page: Page, at: number): Locator => view(page, at).locator('.jp-MegalensView-title');

/** Drag over parts of a plot's width. */
async function drag(page: Page, at: number, from: number, to: number, key?: 'Shift'): Promise<void> {
  const box = await plot(page, at);
  const y = box.top + box.height / 2;
  if (key) {
    await page.keyboard.down(key);
  }
  await page.mouse.move(box.left + from * box.width, y);
  await page.mouse.down();
  await page.mouse.move(box.left + ((from + to) / 2) * box.width, y);
  await page.mouse.move(box.left + to * box.width, y);
  await page.mouse.up();
  if (key) {
    await page.keyboard.up(key);
  }
  await settled(page);
}

test('the layer under the pointer is marked in the run’s other views', async ({ page }) => {
  const box = await plot(page, HEATMAP, 2);
  await page.mouse.move(box.left + box.width / 2, box.top + box.height / 2);
  const line = view(page, TREND).locator('.jp-MegalensLinked.jp-mod-line');
  await expect(line).toHaveCount(1);
  await expect(view(page, SCALARS).locator('.jp-MegalensLinked.jp-mod-rule')).toHaveCount(1);
  await expect(view(page, HEATMAP).locator('.jp-MegalensLinked')).toHaveCount(0);
  // The mark lies over the plot, and within it; it is put anew each time the view is drawn.
  await expect(async () => {
    const [drawn, plotted] = [await line.boundingBox(), await plot(page, TREND)];
    expect(drawn?.x).toBeCloseTo(plotted.left, 0);
    expect(drawn?.width).toBeCloseTo(plotted.width, 0);
  }).toPass();
  await page.mouse.move(5, 5);
  await expect(page.locator('.jp-MegalensLinked')).toHaveCount(0);
});

test('the line near the pointer marks its layer’s picture', async ({ page }) => {
  const box = await plot(page, HEATMAP, 3);
  await page.mouse.move(box.left + box.width / 2, box.top + box.height / 2);
  const path = view(page, TREND).locator('.jp-MegalensLinked .jp-mod-line');
  const ends = /([\d.]+) ([\d.]+)$/;
  await expect(path).toHaveAttribute('d', ends);
  const end = ends.exec((await path.getAttribute('d')) ?? '');
  const trend = await plot(page, TREND);
  await page.mouse.move(trend.left + Number(end?.[1]) - 1, trend.top + Number(end?.[2]) + 2);
  const marked = view(page, HEATMAP).locator('.jp-MegalensLinked.jp-mod-box');
  await expect(marked).toHaveCount(1);
  await expect(async () => {
    const [mark, picture] = [await marked.boundingBox(), await plot(page, HEATMAP, 3)];
    expect(mark?.x).toBeCloseTo(picture.left, 0);
    expect(mark?.y).toBeCloseTo(picture.top, 0);
  }).toPass();
});

test('dragging with Shift filters the other views, shows where, and is taken back', async ({ page }) => {
  await drag(page, TREND, 0.25, 0.5, 'Shift');
  await expect(title(page, SCALARS)).toContainText(/steps 3\d to 60/);
  await expect(title(page, HEATMAP)).toContainText('step 60');
  await expect(title(page, TREND)).toContainText('steps 1 to 120');
  await expect(async () => {
    const band = await view(page, TREND).locator('.jp-MegalensBand').boundingBox();
    const box = await plot(page, TREND);
    expect(band?.x).toBeGreaterThan(box.left + 0.24 * box.width);
    expect((band?.x ?? 0) + (band?.width ?? 0)).toBeLessThan(box.left + 0.51 * box.width);
  }).toPass();
  await expect(page.getByRole('button', { name: /^steps 3\d–60/ })).toHaveCount(3);
  // The drag was no pan and no zoom, and the focus is where Esc is heard.
  await page.keyboard.press('Escape');
  await settled(page);
  await expect(title(page, SCALARS)).toContainText('steps 1 to 120');
  await expect(page.locator('.jp-MegalensBand')).toHaveCount(0);
});

test('Esc lets go of a drag without choosing', async ({ page }) => {
  const box = await plot(page, SCALARS);
  await page.keyboard.down('Shift');
  await page.mouse.move(box.left + 50, box.top + 40);
  await page.mouse.down();
  await page.mouse.move(box.left + 200, box.top + 40);
  await expect(view(page, SCALARS).locator('.jp-MegalensBand')).toHaveCount(1);
  await page.keyboard.press('Escape');
  await expect(page.locator('.jp-MegalensBand')).toHaveCount(0);
  await page.mouse.up();
  await page.keyboard.up('Shift');
  await settled(page);
  await expect(title(page, TREND)).toContainText('steps 1 to 120');
});

test('a drag without Shift still pans what is zoomed and chooses nothing', async ({ page }) => {
  const stage = view(page, TREND).locator('.jp-MegalensStage');
  await stage.focus();
  for (const key of ['+', '+', '+', '+']) {
    await page.keyboard.press(key);
  }
  await drag(page, TREND, 0.6, 0.4);
  await expect(page.locator('.jp-MegalensBand')).toHaveCount(0);
  await expect(title(page, SCALARS)).toContainText('steps 1 to 120');
  await view(page, TREND).getByRole('button', { name: 'More actions' }).click();
  await page.getByRole('menuitem', { name: 'Show only these steps in the other views' }).click();
  await settled(page);
  await expect(title(page, SCALARS)).not.toContainText('steps 1 to 120');
  await expect(page.getByRole('button', { name: /^steps \d+–\d+/ })).toHaveCount(3);
});

test('a click pins its step in every view, tips compare with it, and Esc unpins', async ({ page }) => {
  const box = await plot(page, TREND);
  await page.mouse.click(box.left + ((60 - 1) / 119) * box.width, box.top + box.height / 2);
  await settled(page);
  await expect(page.getByRole('button', { name: /^Pinned: step 60/ })).toHaveCount(3);
  await expect(title(page, HEATMAP)).toContainText('step 60');
  // Where the step is drawn, in the clicked view and in another one.
  for (const at of [TREND, SCALARS]) {
    await expect(async () => {
      const [mark, plotted] = [
        await view(page, at).locator('.jp-MegalensPin').boundingBox(),
        await plot(page, at)
      ];
      expect((mark?.x ?? 0) + 1).toBeCloseTo(plotted.left + ((60 - 1) / 119) * plotted.width, -0.5);
      expect(mark?.height).toBeCloseTo(plotted.height, 0);
    }).toPass();
  }
  await page.mouse.move(box.left + box.width - 1, box.top + box.height / 2);
  const tooltip = view(page, TREND).locator('.jp-MegalensTooltip');
  await expect(tooltip).toContainText('at step 60');
  const rows = (await tooltip.locator('.jp-MegalensTooltip-lines > span').allInnerTexts()).slice(4);
  const number = (text = ''): number => Number(text.replace('\u2212', '-').replace(/[\s+]/g, ''));
  expect(number(rows[3])).toBeCloseTo(number(rows[1]) - number(rows[2]), 3);
  await page.keyboard.press('Escape');
  await settled(page);
  await expect(page.locator('.jp-MegalensPin')).toHaveCount(0);
  await expect(title(page, HEATMAP)).toContainText('step 120');
});

test('a drag and a double click pin nothing; the drag zooms to its steps', async ({ page }) => {
  const domain = () => page.evaluate(() => window.harness.domainOf(0));
  await drag(page, TREND, 0.25, 0.5);
  await expect(async () => {
    const { x0, x1 } = await domain();
    expect(x0).toBeCloseTo(1 + 0.25 * 119, 0);
    expect(x1).toBeCloseTo(1 + 0.5 * 119, 0);
  }).toPass();
  // The y axis fits what is seen.
  const { y0, y1 } = await domain();
  const box = await plot(page, TREND);
  await page.mouse.dblclick(box.left + box.width / 2, box.top + box.height / 2);
  await settled(page);
  await expect.poll(domain).toMatchObject({ x0: 1, x1: 120 });
  const all = await domain();
  expect(y1 - y0).toBeLessThan(all.y1 - all.y0);
  await expect(page.locator('.jp-MegalensPin')).toHaveCount(0);
});

for (const theme of SHOWN) {
  test(`marks and chosen steps in the ${theme} theme`, async ({ page }) => {
    await page.evaluate(name => window.harness.theme(name), theme);
    const pinned = await plot(page, TREND);
    await page.mouse.click(pinned.left + 0.6 * pinned.width, pinned.top + 40);
    await settled(page);
    await page.mouse.move(pinned.left + 0.3 * pinned.width, pinned.top + pinned.height / 2);
    await expect(view(page, TREND).locator('.jp-MegalensTooltip')).toContainText('difference');
    await picture(page, `pinned-${theme}`, { fullPage: true });
    await drag(page, SCALARS, 0.3, 0.8, 'Shift');
    const box = await plot(page, HEATMAP, 2);
    await page.mouse.move(box.left + box.width / 2, box.top + box.height / 2);
    await expect(view(page, TREND).locator('.jp-MegalensLinked.jp-mod-line')).toHaveCount(1);
    await picture(page, `linked-${theme}`, { fullPage: true });
    const trend = await plot(page, TREND);
    await page.mouse.move(trend.left + trend.width - 2, trend.top + trend.height / 2);
    await picture(page, `linked-back-${theme}`, { fullPage: true });
  });
}

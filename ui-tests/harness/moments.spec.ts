import type { Page } from '@playwright/test';
import type { StatisticsOptions, ViewOptions } from '../../src/protocol/views.generated';
import type { IMomentShape } from './moments';
import { picture } from '../picture';
import type { ISyntheticShape } from './source';
import { expect, test, work } from './test';

const shaped = (moments: IMomentShape): ISyntheticShape => ({
  layers: 1,
  positions: 4,
  tiles: 2,
  steps: 2,
  moments
});

async function show(
  page: Page,
  options: Omit<StatisticsOptions, 'view'>,
  moments: IMomentShape,
  other?: IMomentShape
): Promise<void> {
  await page.evaluate(([view, shape, second]) => window.harness.show(view, shape, second ?? undefined), [
    { view: 'statistics', ...options } as ViewOptions,
    shaped(moments),
    other ? shaped(other) : null
  ] as const);
}

const plot = (page: Page): Promise<{ left: number; top: number; width: number; height: number }> =>
  page.evaluate(() => window.harness.plot());
const domain = (page: Page): Promise<Record<string, number>> =>
  page.evaluate(() => window.harness.domain() as Record<string, number>);
const settled = (page: Page): Promise<void> => page.evaluate(() => window.harness.view?.settled());

async function wheel(page: Page, x: number, y: number, by: number): Promise<void> {
  await page.mouse.move(x, y);
  await page.keyboard.down('Control');
  await page.mouse.wheel(0, by);
  await page.keyboard.up('Control');
}

test('a spike of one step is visible at every zoom, among 97 lines of 3 000 steps', async ({ page }) => {
  const spike = 1717;
  await show(page, { kind: 'tensors', series: 100, statistic: 'rms' }, { layers: 24, steps: 3000, spike });
  await expect(page.locator('.jp-MegalensView-caption')).toContainText('every minimum and maximum is kept');
  const box = await plot(page);
  /** Whether something is painted near the top of the plot where the spike is, and only there. */
  const isSeen = async (): Promise<boolean[]> => {
    const { x0 = 0, x1 = 1 } = await domain(page);
    const x = box.left + ((spike - x0) / (x1 - x0)) * box.width;
    const strip = (center: number): [number, number][] =>
      [-3, -2, -1, 0, 1, 2, 3].map(by => [Math.round(center) + by, box.top + 0.08 * box.height]);
    const painted = (points: [number, number][]): Promise<boolean[]> =>
      page.evaluate(all => all.map(([left, top]) => window.harness.colorAt(left, top)[3] !== 0), points);
    const far = x + 60 < box.left + box.width ? x + 60 : x - 60;
    return [(await painted(strip(x))).includes(true), (await painted(strip(far))).every(Boolean)];
  };
  await expect.poll(isSeen).toEqual([true, false]);
  for (let zoom = 0; zoom < 5; zoom += 1) {
    const { x0 = 0, x1 = 1 } = await domain(page);
    await wheel(page, box.left + ((spike - x0) / (x1 - x0)) * box.width, box.top + box.height / 2, -300);
    await expect.poll(async () => (await domain(page)).x1).not.toBe(x1);
    await settled(page);
    await expect.poll(isSeen).toEqual([true, false]);
  }
  const { x0 = 0, x1 = 1 } = await domain(page);
  expect(x1 - x0).toBeLessThan(60);
});

for (const width of [360, 1000, 1700]) {
  test(`the largest cell of a map of 2 000 steps is in its pixels, ${width} px wide`, async ({ page }) => {
    await page.setViewportSize({ width, height: 700 });
    const map: Parameters<typeof show>[1] = {
      kind: 'map',
      by: ['name'],
      statistic: 'rms',
      transform: 'linear'
    };
    await show(page, map, { layers: 2, steps: 2000, spike: 1717 });
    // The spike is 40 times what is around it, so that all else is dark; the strip's top is a round number.
    const isSeen = async (): Promise<boolean> =>
      (await page.evaluate(() => window.harness.farFromTop())) < 30;
    await expect.poll(isSeen).toBe(true);
    const box = await plot(page);
    expect(box.width).toBeLessThan(2000);
    await wheel(page, box.left + (1717 / 2000) * box.width, box.top + box.height / 2, -200);
    await settled(page);
    await expect.poll(isSeen).toBe(true);
  });
}

test('zooming reads more detail of what is shown', async ({ page }) => {
  await show(page, { by: ['layer'], statistic: 'rms' }, { layers: 2, steps: 20_000 });
  const box = await plot(page);
  const steps = (): Promise<number> =>
    page.evaluate(() => {
      const line = window.harness.shownSteps();
      return line;
    });
  const before = await steps();
  for (let zoom = 0; zoom < 4; zoom += 1) {
    await wheel(page, box.left + box.width / 2, box.top + box.height / 2, -300);
    await settled(page);
  }
  await settled(page);
  const { x0 = 0, x1 = 1 } = await domain(page);
  // Every step that is shown has a point of its own now.
  await expect.poll(steps).toBe(Math.floor(x1) - Math.ceil(x0) + 1);
  expect(before).toBeLessThan(3000);
});

test('a hundred lines of 10 000 steps open quickly and pan under the hand', async ({ page }, info) => {
  const opened = await page.evaluate(
    async shape => {
      const start = performance.now();
      await window.harness.show(
        { view: 'statistics', kind: 'tensors', series: 100, statistic: 'rms' },
        shape
      );
      return performance.now() - start;
    },
    shaped({ layers: 25, steps: 10_000 })
  );
  const box = await plot(page);
  const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
  for (let zoom = 0; zoom < 3; zoom += 1) {
    await wheel(page, x, y, -300);
    await settled(page);
  }
  await settled(page);
  const before = await domain(page);
  const computed = await work(page);
  const move = await computed(60, async () => {
    await page.mouse.move(x, y);
    await page.mouse.down();
    for (let at = 1; at <= 60; at += 1) {
      await page.mouse.move(x + at * 5, y);
    }
    await page.mouse.up();
  });
  await expect.poll(async () => (await domain(page)).x0).toBeLessThan(before.x0 ?? 0);
  const report = `1,010,000 rows: first picture ${opened.toFixed(0)} ms, pan ${move.toFixed(1)} ms a move, computed`;
  info.annotations.push({ type: 'measured', description: report });
  console.log(report);
  expect(move).toBeLessThan(34);
});

test('new steps are drawn while zoom and mark stay', async ({ page }) => {
  await show(page, { by: ['layer'] }, { layers: 4, steps: 400 });
  const box = await plot(page);
  await wheel(page, box.left + box.width / 4, box.top + box.height / 2, -300);
  await settled(page);
  const before = await domain(page);
  await page.evaluate(() => {
    for (let step = 0; step < 30; step += 1) {
      window.harness.run?.advanceMoments();
    }
  });
  await settled(page);
  await expect(page.locator('.jp-MegalensView-title')).toContainText('steps 1 to 430');
  const after = await domain(page);
  expect([after.x0, after.x1]).toEqual([before.x0, before.x1]);
});

test('the first bad step is named and one click away', async ({ page }) => {
  await show(page, { kind: 'overview' }, { layers: 4, steps: 400, bad: 320 });
  await expect(page.locator('.jp-MegalensNote').first()).toContainText(
    'step 320, decoder.layers.1.mlp.linear_fc1.weight'
  );
  await page.getByRole('button', { name: 'Go there' }).first().click();
  await expect(page.locator('.jp-MegalensView-title')).toHaveText(/by tensor, steps 270 to 370/);
  expect(await page.evaluate(() => window.harness.code())).toContain('run.statistics(kind="tensors"');
});

test('layer and steps are linked with the run’s other views', async ({ page }) => {
  await page.setViewportSize({ width: 1000, height: 1500 });
  const views: ViewOptions[] = [
    { view: 'statistics', by: ['layer'] },
    { view: 'statistics', kind: 'layer_map' }
  ];
  await page.evaluate(([all, shape]) => window.harness.showTogether(all, shape), [
    views,
    shaped({ layers: 4, steps: 200 })
  ] as const);
  const map = await page.evaluate(() => window.harness.plotOf(1));
  await page.mouse.move(map.left + map.width / 2, map.top + (2.5 / 5) * map.height);
  const first = page.locator('.jp-MegalensMoments').first();
  await expect(first.locator('.jp-MegalensLinked.jp-mod-line')).toHaveCount(1);
  await expect(first.locator('.jp-MegalensLinked.jp-mod-rule')).toHaveCount(1);
  const lines = await page.evaluate(() => window.harness.plotOf(0));
  await page.keyboard.down('Shift');
  await page.mouse.move(lines.left + 0.25 * lines.width, lines.top + 80);
  await page.mouse.down();
  await page.mouse.move(lines.left + 0.3 * lines.width, lines.top + 80);
  await page.mouse.move(lines.left + 0.5 * lines.width, lines.top + 80);
  await page.mouse.up();
  await page.keyboard.up('Shift');
  const title = page.locator('.jp-MegalensMoments').nth(1).locator('.jp-MegalensView-title');
  await expect(title).toHaveText(/steps 51 to 100/);
  await expect(page.locator('[data-control="filter"]')).toHaveCount(2);
  await picture(page, 'moments-linked-light', { fullPage: true });
  await page.keyboard.press('Escape');
  await expect(title).toHaveText(/steps 1 to 200/);
});

test('runs are compared, and the filters unfold into a second line', async ({ page }) => {
  const other: IMomentShape = { layers: 4, steps: 300, scale: 1.6 };
  await show(page, { by: ['family'], runs: ['gpt-wide'] }, { layers: 4, steps: 400, rough: true }, other);
  await page.locator('[data-control="more"]').click();
  await expect(page.locator('[data-control="compare"]')).toBeVisible();
  await picture(page, 'moments-compare-light', { fullPage: true });
  await page.locator('[data-control="compare"] select').selectOption('ratio');
  await settled(page);
  await expect(page.locator('.jp-MegalensView-caption')).toContainText('gpt-wide over this run.');
  await picture(page, 'moments-ratio-light', { fullPage: true });
});

test('a narrow page has room for everything', async ({ page }) => {
  await page.setViewportSize({ width: 360, height: 900 });
  await show(page, { by: ['layer'] }, { layers: 30, steps: 400, bad: 320 });
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  await picture(page, 'moments-narrow-light', { fullPage: true });
  expect(wide).toBeLessThanOrEqual(360);
});

test('lines are painted as large as their plot, also when that changes', async ({ page }) => {
  await show(page, { by: ['layer'] }, { layers: 4, steps: 40 });
  const stretched = (): Promise<number> => page.evaluate(() => window.harness.stretched());
  await expect.poll(stretched).toBe(0);
  const painted = (): Promise<number | undefined> =>
    page.evaluate(() => window.harness.chart().recipe.painted);
  const before = await painted();
  await page.setViewportSize({ width: 700, height: 700 });
  await expect.poll(painted).toBeGreaterThan(before ?? 0);
  await settled(page);
  await expect.poll(stretched).toBe(0);
});

test('lines take the colours of another theme', async ({ page }) => {
  await show(page, { by: ['layer'] }, { layers: 4, steps: 40 });
  const colors = (): Promise<string> =>
    page.evaluate(() =>
      JSON.stringify(window.harness.chart().recipe.datasets['key']?.map(({ color }) => color))
    );
  const light = await colors();
  const painted = (): Promise<number | undefined> =>
    page.evaluate(() => window.harness.chart().recipe.painted);
  const before = await painted();
  await page.evaluate(() => window.harness.theme('dark'));
  await expect.poll(colors).not.toBe(light);
  await expect.poll(painted).toBeGreaterThan(before ?? 0);
});

test('a tip of many long names stays within a narrow picture, its values in one column', async ({ page }) => {
  await page.setViewportSize({ width: 340, height: 760 });
  const options = { kind: 'tensors', runs: ['gpt-wide'], series: 10 } as const;
  await show(page, { ...options, runs: ['gpt-wide'] }, { layers: 6, steps: 60 }, { layers: 6, steps: 60 });
  const box = await plot(page);
  await page.mouse.click(box.left + 0.3 * box.width, box.top + 10);
  await settled(page);
  await page.mouse.move(box.left + 0.7 * box.width, box.top + 0.5 * box.height);
  const tooltip = page.locator('.jp-MegalensTooltip');
  await expect(tooltip).toContainText('…');
  await picture(page, 'tip-narrow');
  const found = await page.evaluate(() => {
    const stage = document.querySelector('.jp-MegalensStage') as HTMLElement;
    const tip = stage.querySelector('.jp-MegalensTooltip') as HTMLElement;
    const [outer, inner] = [stage.getBoundingClientRect(), tip.getBoundingClientRect()];
    const names = [...tip.querySelectorAll('.jp-MegalensTooltip-name')];
    return {
      within:
        inner.left >= outer.left - 1 && inner.right <= outer.right + 1 && inner.bottom <= outer.bottom + 1,
      overflow: tip.scrollWidth - tip.clientWidth,
      page: document.documentElement.scrollWidth - document.documentElement.clientWidth,
      lines: names.length,
      ends: [
        ...new Set(names.map(name => Math.round(name.nextElementSibling?.getBoundingClientRect().right ?? 0)))
      ],
      figures: getComputedStyle(tip).fontVariantNumeric
    };
  });
  expect(found).toMatchObject({ within: true, overflow: 0, page: 0, figures: 'tabular-nums' });
  expect(found.lines).toBeGreaterThan(9);
  expect(found.ends).toHaveLength(1);
});

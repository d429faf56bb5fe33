import type { ViewOptions } from '../../src/protocol/views.generated';
import { SHOWN, picture } from '../picture';
import { SMALL_RUN } from './small-run';
import { expect, setTheme, test } from './test';

const SHAPE = { ...SMALL_RUN, pipeline: true };
/** Views of one picture, and of several below one another. */
const ALONE: Record<string, ViewOptions> = {
  timeline: { view: 'timeline' },
  'timeline-map': { view: 'timeline', kind: 'map' },
  'layer-map': { view: 'statistics', kind: 'layer_map' },
  plan: { view: 'pipeline', kind: 'plan' }
};
const SEVERAL: Record<string, ViewOptions> = {
  overview: { view: 'overview' },
  history: { view: 'history', flag: 'MLP1_mat_mul' },
  statistics: { view: 'statistics', kind: 'overview' },
  pipeline: { view: 'pipeline', activation_mb: 400, weight_mb: 6000, memory_gb: 9 },
  split: { view: 'split', devices: 2, others: 2, forward: 24, backward: 48 }
};
const SIZES = { narrow: [280, 640], tile: [530, 480], usual: [1000, 700], large: [3840, 2100] } as const;

type Size = keyof typeof SIZES;
const CASES: [string, ViewOptions, Size][] = [
  ...Object.entries(ALONE).flatMap(([name, options]) =>
    (Object.keys(SIZES) as Size[]).map((size): [string, ViewOptions, Size] => [name, options, size])
  ),
  ...Object.entries(SEVERAL).map(([name, options]): [string, ViewOptions, Size] => [name, options, 'large'])
];

for (const [name, options, size] of CASES) {
  test(`${name} fills a ${size} tab, and nothing of it is scrolled`, async ({ page }) => {
    const [width, height] = SIZES[size];
    await page.setViewportSize({ width, height });
    const views = [options];
    await page.evaluate(([v, run, x, y]) => window.harness.showTabs(v, run, x, y), [
      views,
      SHAPE,
      width,
      height
    ] as const);
    /** Pixels that are scrolled down and across, and those that nothing is drawn in. */
    const over = (): Promise<number[]> =>
      page.evaluate(() => {
        const tab = document.querySelector('.tab')!;
        const { clientHeight, clientWidth, scrollHeight, scrollWidth } = tab;
        const end = tab.lastElementChild!.getBoundingClientRect().bottom;
        return [scrollHeight - clientHeight, scrollWidth - clientWidth, clientHeight - end];
      });
    await expect.poll(async () => (await over()).slice(0, 2)).toEqual([0, 0]);
    // Each picture of the tab is as high as a multiple of so many pixels.
    await expect.poll(async () => (await over())[2]).toBeLessThan(100);
    for (const theme of SHOWN) {
      await setTheme(page, theme);
      await picture(page, `fill-${name}-${size}-${theme}`);
    }
  });
}

for (const [name, options] of Object.entries(SEVERAL)) {
  test(`${name} is scrolled down in a narrow tab, and not across`, async ({ page }) => {
    await page.setViewportSize({ width: 280, height: 640 });
    const views = [options];
    await page.evaluate(([v, run]) => window.harness.showTabs(v, run, 280, 640), [views, SHAPE] as const);
    await expect.poll(() => page.locator('.tab').evaluate(tab => tab.scrollWidth - tab.clientWidth)).toBe(0);
    await picture(page, `fill-${name}-narrow-light`);
  });
}

test('three views side by side in a window of 1600 x 1000 show their axes without scroll bars', async ({
  page
}) => {
  await page.setViewportSize({ width: 1600, height: 1000 });
  const views: ViewOptions[] = [ALONE['timeline']!, ALONE['layer-map']!, { view: 'scalars' }];
  // JupyterLab's sidebar and its bars leave this.
  await page.evaluate(([v, run]) => window.harness.showTabs(v, run, 430, 900), [views, SHAPE] as const);
  const over = (): Promise<number[]> =>
    page
      .locator('.tab')
      .evaluateAll(tabs =>
        tabs.flatMap(tab => [tab.scrollHeight - tab.clientHeight, tab.scrollWidth - tab.clientWidth])
      );
  await expect.poll(over).toEqual([0, 0, 0, 0, 0, 0]);
  await picture(page, 'fill-tiled-light');
});

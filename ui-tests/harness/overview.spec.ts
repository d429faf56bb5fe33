import type { Status } from '../../src/protocol/messages.generated';
import { picture, SHOWN } from '../picture';
import { syntheticAlarms } from './alarms';
import { breaksNoRule } from './rules';
import { SMALL_RUN } from './small-run';
import { expect, test } from './test';

const STATUS: Status = {
  type: 'status',
  state: 'training',
  step: 1240,
  overhead: { percent: 0.61, low: 0.4, high: 0.8 },
  bytes_per_step: 42_000,
  probes: { fired: 12, expected: 12, missing: [] },
  dropped: { producer: 0, viewer: 0, recorder: 0 },
  recording: { state: 'on', bytes: 52_000_000, limit_bytes: 2_000_000_000 }
};
const RUN = { ...SMALL_RUN, alarms: syntheticAlarms(), status: STATUS };
/** What JupyterLab leaves of windows beside the panel: of the usual one, of the narrowest, of a wide one. */
const SIZES = [
  [980, 680],
  [320, 900],
  [2200, 1300]
] as const;

for (const theme of SHOWN) {
  for (const [width, height] of SIZES) {
    test(`a run is seen at a glance at ${width} pixels, ${theme}`, async ({ page }) => {
      await page.setViewportSize({ width, height });
      await page.evaluate(name => window.harness.theme(name), theme);
      await page.evaluate(shape => window.harness.show({ view: 'overview' }, shape), RUN);
      await expect(page.locator('.jp-MegalensTile canvas')).toHaveCount(2);
      await expect(page.locator('.jp-mod-news li')).toHaveCount(3);
      await picture(page, `overview-${width}-${theme}`);
      const [across, down] = await page.evaluate(() => {
        const { scrollWidth, clientWidth, scrollHeight, clientHeight } = document.documentElement;
        return [scrollWidth - clientWidth, scrollHeight - clientHeight] as const;
      });
      expect(across).toBe(0);
      if (width >= 980) {
        // All of it is in sight at once.
        expect(down).toBe(0);
      }
      await breaksNoRule(page, theme, `overview at ${width} pixels`);
    });
  }
}

test('with the focus all of a picture’s sentence is read, and the picture stays where it is', async ({
  page
}) => {
  await page.setViewportSize({ width: 400, height: 900 });
  await page.evaluate(shape => window.harness.show({ view: 'overview' }, shape), RUN);
  const sentence = page.locator('.jp-mod-picture .jp-MegalensView-insight').last();
  const stage = page.locator('.jp-mod-picture .jp-MegalensStage').last();
  const hidden = (): Promise<number> => sentence.evaluate(node => node.scrollHeight - node.clientHeight);
  expect(await hidden()).toBeGreaterThan(0);
  const before = await stage.boundingBox();
  await page.keyboard.press('Tab');
  await sentence.focus();
  await expect.poll(hidden).toBe(0);
  expect(await stage.boundingBox()).toEqual(before);
  // Its words lie over the picture, in a colour that nothing shines through.
  expect(await sentence.evaluate(node => getComputedStyle(node).backgroundColor)).toBe('rgb(255, 255, 255)');
  await picture(page, 'overview-sentence');
});

test('a heading and a sentence of what happened open their view, at that step', async ({ page }) => {
  await page.evaluate(shape => window.harness.show({ view: 'overview' }, shape), RUN);
  await page.locator('.jp-MegalensTile-heading button').first().click();
  await page.locator('.jp-mod-news li button').first().click();
  await page.getByRole('button', { name: 'Where a step’s time goes' }).click();
  const opened = await page.evaluate(() => window.harness.opened.map(({ view }) => view));
  expect(opened).toEqual(['scalars', 'health', 'timeline']);
  const step = await page.evaluate(() => window.harness.run?.link.pinned);
  expect(step).toBe(320);
});

test('with nothing traced it says what can be had, and at which price', async ({ page }) => {
  const { moments: _, ...run } = RUN;
  const bare = { ...run, alarms: [], untraced: true };
  await page.evaluate(shape => window.harness.show({ view: 'overview' }, shape), bare);
  const map = page.locator('.jp-mod-map');
  await expect(map).toContainText('Nothing is traced yet.');
  await expect(map.locator('li', { hasText: 'MLP1 output' })).toContainText(/≈ \d/);
  await map.getByRole('button', { name: 'Trace' }).first().click();
  await expect(map.getByRole('alert')).toContainText('takes no settings');
  await picture(page, 'overview-untraced');
});

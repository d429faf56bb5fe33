import { SHOWN, picture } from '../picture';
import { SMALL_RUN } from './small-run';
import { expect, setTheme, test } from './test';

const MANY = { ...SMALL_RUN, steps: 100, scalars: 196 };

test('a page of 200 scalars of two runs makes pictures where they are in sight', async ({ page }) => {
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.evaluate(
    ([shape, other]) =>
      window.harness.show({ view: 'scalars', kind: 'page', runs: ['gpt-wide'] }, shape, other),
    [MANY, { ...MANY, lift: 0.4 }] as const
  );
  const small = page.locator('.jp-mod-small');
  await expect(small).toHaveCount(200);
  await expect(small.first().locator('canvas.marks')).toBeVisible();
  const drawn = await page.locator('.jp-mod-small .jp-MegalensView').count();
  expect(drawn).toBeLessThan(60);
  await page.locator('[data-control="search"] input').fill('eval metric_1');
  await page.keyboard.press('Enter');
  await expect(small).toHaveCount(11);
  for (const theme of SHOWN) {
    await setTheme(page, theme);
    await picture(page, `scalars-page-${theme}`);
  }
  await page.setViewportSize({ width: 280, height: 800 });
  await expect
    .poll(() => page.evaluate(() => document.documentElement.scrollWidth - innerWidth))
    .toBeLessThanOrEqual(0);
  await picture(page, 'scalars-page-280');
});

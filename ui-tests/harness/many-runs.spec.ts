import { violations } from '../axe.cjs';
import { picture } from '../picture';
import { rules } from './rules';
import { expect, test } from './test';
import { showWidget } from './widget-page';

for (const theme of ['light', 'dark'] as const) {
  test(`a thousand runs are a band with outliers over it, and a table that holds few rows, ${theme}`, async ({
    blank: page
  }) => {
    await page.evaluate(() => (location.hash = 'many'));
    await page.setViewportSize({ width: 1280, height: 800 });
    await showWidget(page, 'fit-page', theme);
    const rows = page.locator('tr[data-run]');
    await expect(page.getByRole('img', { name: /^loss of 1\s000 runs by step$/ })).toBeVisible();
    await expect(page.locator('figcaption')).toContainText(/998 to 1\s000 of them at a step/);
    // Outliers are named, come first in the table, and are drawn over the band.
    await expect(page.locator('.jp-MegalensCourses li')).toHaveText([
      /^sweep-0997 not finite from step 5\s601$/,
      /^sweep-0998 ends early$/,
      /^sweep-0999 far from the others$/
    ]);
    await expect(rows.first()).toContainText('sweep-0997');
    await expect(page.locator('.jp-MegalensCourses path.jp-mod-far')).toHaveCount(1);
    expect(await rows.count()).toBeLessThanOrEqual(200);
    await picture(page, `many-runs-${theme}`);
    expect.soft(await violations(page, ['.jp-MegalensRunsTable'], rules(theme))).toEqual([]);
    // A run under the pointer, or with the focus, is drawn over the others.
    await expect(page.locator('path.jp-mod-pointed')).toHaveCount(0);
    await rows.nth(5).hover();
    await expect(page.locator('path.jp-mod-pointed')).toHaveCount(1);
    await page.getByRole('list', { name: 'Outliers' }).getByRole('button').first().focus();
    await expect(page.locator('path.jp-mod-pointed')).toHaveCount(1);
    // Small pictures of what runs have in common, all with the same axes.
    await page.getByLabel('Small pictures by').selectOption('tags');
    await expect(page.getByRole('img', { name: 'loss, adam: 500 runs' })).toBeVisible();
    await expect(page.getByRole('img', { name: 'loss, muon: 500 runs' })).toBeVisible();
    await picture(page, `many-runs-small-${theme}`);
    expect.soft(await violations(page, ['.jp-MegalensRunsTable'], rules(theme))).toEqual([]);
    await page.getByLabel('Small pictures by').selectOption('');
    await expect(page.locator('.jp-MegalensSmallCourses')).toHaveCount(0);
    // The last row is reached by scrolling, in the place where it would be.
    await page.locator('.jp-MegalensRunsTable-scroll').evaluate(node => node.scrollTo(0, node.scrollHeight));
    await expect(page.locator('tr[data-run="run-d"]')).toBeInViewport();
    await page.getByRole('searchbox').fill('sweep-0042');
    await expect(rows).toHaveCount(1);
    await page.getByRole('button', { name: 'sweep-0042', exact: true }).click();
    await expect(page.locator('tr.jp-mod-chosen')).toContainText('sweep-0042');
    await page.setViewportSize({ width: 2500, height: 1000 });
    await page.getByRole('searchbox').fill('');
    // It begins at the top again, where a filter has left off the rows that were in sight.
    await expect(rows.first()).toBeInViewport();
    await picture(page, `many-runs-wide-${theme}`);
  });
}

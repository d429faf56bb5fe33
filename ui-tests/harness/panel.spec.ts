import { expect, test } from '@playwright/test';
import { join } from 'node:path';
import { bundled, SHOTS, showWidget } from './widget-page';

let script = '';

test.beforeAll(async () => {
  script = await bundled('panel-page.ts');
});

for (const theme of ['light', 'dark'] as const) {
  test(`a panel of hostile names with a section that throws, ${theme}`, async ({ page }) => {
    await page.setViewportSize({ width: 300, height: 900 });
    await showWidget(page, script, theme);
    const fault = page.locator('.jp-mod-perturb.jp-mod-fault');
    await expect(fault.getByRole('alert')).toContainText('are not affected');
    for (const name of ['runs', 'summary', 'trace', 'views']) {
      await expect(page.locator(`.jp-mod-${name} .jp-MegalensSection-toggle`)).toBeVisible();
    }
    await expect(page.locator('.jp-mod-trace label', { hasText: /^__proto__$/ })).toBeVisible();
    await page.screenshot({ path: join(SHOTS, `panel-fault-${theme}.png`) });
    await fault.getByRole('button', { name: 'Copy details' }).click();
    expect(await page.evaluate('copied[0]')).toContain('TypeError');
    await page.evaluate('mend()');
    await fault.getByRole('button', { name: 'Reset' }).click();
    await expect(fault).toHaveCount(0);
  });
}

import { SHOWN, picture } from '../picture';
import { expect, test } from './test';
import { showWidget } from './widget-page';

for (const theme of SHOWN) {
  test(`a panel of hostile names with a section that throws, ${theme}`, async ({ blank: page }) => {
    await page.setViewportSize({ width: 300, height: 900 });
    await showWidget(page, 'panel-page', theme);
    const fault = page.locator('.jp-mod-perturb.jp-mod-fault');
    await expect(fault.getByRole('alert')).toContainText('are not affected');
    for (const name of ['runs', 'summary', 'trace', 'views']) {
      await expect(page.locator(`.jp-mod-${name} .jp-MegalensSection-toggle`)).toBeVisible();
    }
    await expect(page.locator('.jp-mod-trace label', { hasText: /^__proto__$/ })).toBeVisible();
    await picture(page, `panel-fault-${theme}`);
    await fault.getByRole('button', { name: 'Copy details' }).click();
    expect(await page.evaluate('copied[0]')).toContain('TypeError');
    await page.evaluate('mend()');
    await fault.getByRole('button', { name: 'Reset' }).click();
    await expect(fault).toHaveCount(0);
  });
}

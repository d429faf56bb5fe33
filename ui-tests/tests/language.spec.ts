import { expect, load, showPanel, test, THEMES, type ILab } from '../lab';
import { picture } from '../picture';
import type { Page } from '@playwright/test';

/** Choose the language as JupyterLab's settings do; the page takes it when it is loaded. */
async function speak(page: Page, lab: ILab, locale: string): Promise<void> {
  await load(page, lab);
  await page.evaluate(async chosen => {
    const { serviceManager } = (
      window as unknown as {
        jupyterapp: { serviceManager: { settings: { save(id: string, raw: string): Promise<void> } } };
      }
    ).jupyterapp;
    await serviceManager.settings.save(
      '@jupyterlab/translation-extension:plugin',
      JSON.stringify({ locale: chosen })
    );
  }, locale);
  await load(page, lab);
}

test('panel, views, states and menus are Chinese where JupyterLab is', async ({ page, lab }) => {
  const training = await lab.train('gpt-chinese', { traced: true, allowing: true, monitor: true });
  try {
    await speak(page, lab, 'zh_CN');
    const panel = await showPanel(page);
    await expect(panel.getByRole('option', { name: 'gpt-chinese' })).toContainText('实时');
    await expect(panel.locator('.jp-MegalensFigures-loss')).toContainText(/损失 \d/);
    await expect(panel).toContainText('追踪');
    // What others wrote, code and field terms are all that is not Chinese.
    await expect(panel).not.toContainText(/\b(the|of|and|is|no|not|run|step|layer)\b/i);
    for (const [theme, name] of THEMES) {
      await page.evaluate(
        chosen =>
          (
            window as unknown as {
              jupyterapp: { commands: { execute(name: string, options: object): Promise<unknown> } };
            }
          ).jupyterapp.commands.execute('apputils:change-theme', { theme: chosen }),
        theme
      );
      await expect(page.locator('body')).toHaveAttribute('data-jp-theme-name', theme);
      await picture(panel, `chinese-panel-${name}`);
    }
    for (const [title, words] of [
      ['趋势', /第 \d+ 步/],
      ['统计', /每步|对象/],
      ['标量', /[升降]至 \d/]
    ] as const) {
      await panel.getByRole('button', { name: title, exact: true }).click();
      const view = page
        .locator(
          '#jp-main-dock-panel .jp-MegalensView:visible, #jp-main-dock-panel .jp-MegalensMoments:visible'
        )
        .first();
      await expect(view).toContainText(words);
      await picture(page.locator('#jp-main-dock-panel'), `chinese-${title}`);
    }
    await page.keyboard.press('Escape');
  } finally {
    await speak(page, lab, 'en');
    await training.process.end();
  }
});

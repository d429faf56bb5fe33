import { violations } from '../axe.cjs';
import { expect, load, setTheme, showPanel, test, THEMES, type IExposedApp } from '../lab';
import { picture } from '../picture';

test('a live run is seen at a glance, and each tile opens its view', async ({ open, lab }) => {
  test.setTimeout(180_000);
  const options = { traced: true, monitor: true, timeline: true };
  const [training, page] = await Promise.all([lab.train('gpt-glance', options), open()]);
  try {
    await page.setViewportSize({ width: 1280, height: 800 });
    const panel = await showPanel(page);
    await panel.getByRole('option', { name: 'gpt-glance' }).click();
    await expect(panel.locator('[data-view]').first()).toHaveText('Overview');
    await panel.getByRole('button', { name: 'Overview', exact: true }).click();
    const tab = page.locator('.jp-MegalensViewTab:visible');
    const tile = (name: string) => tab.locator(`.jp-MegalensTile.jp-mod-${name}`);
    await expect(tile('scalars').locator('canvas').first()).toBeVisible();
    await expect(tile('map').locator('canvas').first()).toBeVisible();
    await expect(tile('map')).toContainText('Gradients: rms by layer');
    await expect(tile('time')).toContainText('A step takes');
    await expect(tile('cost')).toContainText('tracing');
    await expect(tile('news').locator('li').first()).not.toBeEmpty();
    // It follows the training, and one thing is said of a value that is not finite.
    const state = tab.locator('[data-control="state"]');
    const before = await state.textContent();
    await expect(state).not.toHaveText(before ?? '');
    training.spoil();
    const news = tile('news').locator('.jp-MegalensBrief button').first();
    await expect(news).toBeVisible();
    for (const [theme, name] of THEMES) {
      await setTheme(page, theme);
      await expect(tile('map').locator('canvas').first()).toBeVisible();
      await picture(page, `lab-overview-${name}`);
      expect(await violations(page, ['.jp-MegalensViewTab'])).toEqual([]);
    }
    // All of it is in sight at once.
    const hidden = await tab
      .locator('.jp-MegalensCellView-body')
      .evaluate(({ parentElement: frame }) => (frame?.scrollHeight ?? 0) - (frame?.clientHeight ?? 0));
    expect(hidden).toBeLessThanOrEqual(0);
    await news.click();
    await expect(page.getByRole('tab', { name: /Health/, selected: true })).toBeVisible();
    await page.getByRole('tab', { name: /Overview/ }).click();
    await tile('time').getByRole('button', { name: 'Where a step’s time goes' }).click();
    await expect(page.getByRole('tab', { name: /Timeline/, selected: true })).toBeVisible();
  } finally {
    await training.process.end();
  }
});

test('the code of a view comes in few files, of which a start of JupyterLab loads none', async ({
  page,
  lab
}) => {
  test.setTimeout(180_000);
  const training = await lab.train('gpt-first', { traced: true });
  const files: string[] = [];
  page.on('request', asked => {
    files.push(...(/megalens\/static\/(\w+)\.\w+\.js/.exec(asked.url())?.slice(1) ?? []));
  });
  try {
    await load(page, lab);
    expect(files.filter(name => name === 'vega' || name === 'views')).toEqual([]);
    const atStart = files.length;
    await page.evaluate(
      run =>
        (window as unknown as { jupyterapp: IExposedApp }).jupyterapp.commands.execute(
          'megalens:open-overview',
          { run }
        ),
      training.id
    );
    await expect(page.locator('.jp-MegalensTile.jp-mod-scalars canvas').first()).toBeVisible();
    expect(files).toContain('vega');
    expect(files.length - atStart).toBeLessThanOrEqual(24);
  } finally {
    await training.process.end();
  }
});

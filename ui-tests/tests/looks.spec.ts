import { violations } from '../axe.cjs';
import {
  expect,
  narrow,
  ready,
  runCell,
  setTheme,
  shots,
  showPanel,
  test,
  THEMES,
  writeNotebook
} from '../lab';
import { picture } from '../picture';

test('panel and tabs look right in both themes, and a widget', async ({ open, lab }) => {
  test.setTimeout(180_000);
  const [training, page] = await Promise.all([lab.train('gpt-looks', { traced: true }), open()]);
  const cell =
    'import megalens\nrun = megalens.connect("gpt-looks")\nrun.heatmap("HiddenStates", layers="1-2")';
  writeNotebook(lab, 'looks.ipynb', [cell]);
  try {
    const panel = await showPanel(page);
    await expect(panel.getByRole('option', { name: 'gpt-looks' })).toBeVisible();
    await panel.getByRole('option', { name: 'gpt-looks' }).click();
    await expect(panel.getByText('held-out')).toBeVisible();
    await panel.getByRole('button', { name: /Setting of Hidden states/ }).click();
    for (const [theme, name] of THEMES) {
      await setTheme(page, theme);
      for (const view of ['Scalars', 'Trend', 'Heatmap']) {
        await panel.getByRole('button', { name: view, exact: true }).click();
        const tab = page.locator('.jp-MegalensViewTab:visible');
        await expect(tab.locator('.jp-MegalensPlot canvas').first()).toBeVisible();
        await expect(tab.locator('.jp-MegalensView-title')).not.toBeEmpty();
        await picture(page, `lab-${view.toLowerCase()}-${name}`);
      }
      await picture(panel, `panel-${name}`);
      expect(await violations(page, ['#megalens-panel', '.jp-MegalensViewTab'])).toEqual([]);
    }
    await open('looks.ipynb');
    await ready(page);
    await runCell(page, 0);
    // In the dark theme it looks as the views in tabs do.
    const output = page.locator('.jp-OutputArea-output .jp-MegalensView');
    await expect(output.locator('.jp-MegalensPlot canvas').first()).toBeVisible();
    expect(await violations(page, ['.jp-OutputArea-output .jp-MegalensView'])).toEqual([]);
    await shots(page, 'widget');
  } finally {
    await training.process.end();
  }
});

test('the panel holds at 280 pixels', async ({ open, lab }) => {
  const name = 'a-run-with-a-rather-long-name-for-a-sidebar';
  const [training, page] = await Promise.all([lab.train(name, { traced: true }), open()]);
  try {
    const panel = await showPanel(page);
    await panel.getByRole('option', { name: /a-run-with/ }).click();
    await expect(panel.getByText('loss')).toBeVisible();
    await panel.getByRole('button', { name: /Setting of Hidden states/ }).click();
    await narrow(panel);
    await picture(panel, 'panel-280');
  } finally {
    await training.process.end();
  }
});

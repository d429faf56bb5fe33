import { writeFileSync } from 'fs';
import { join } from 'path';
import type { Locator } from '@playwright/test';
import { expect, ready, runCell, runFromPalette, test, writeNotebook, type ITraining } from '../lab';

test.describe.configure({ mode: 'serial' });

let training: ITraining;

test.beforeAll(async ({ lab }) => {
  training = await lab.train('gpt-notebook', { traced: true });
});

test.afterAll(async () => {
  await training.process.end();
});

test('run.heatmap draws live in the cell, while the kernel is busy too', async ({ open, lab }) => {
  writeNotebook(lab, 'live.ipynb', [
    'import megalens, os, time\nrun = megalens.connect("gpt-notebook")\nview = run.heatmap("HiddenStates", layers="1")\nview',
    'while not os.path.exists("enough"):\n    time.sleep(0.05)'
  ]);
  const page = await open('live.ipynb');
  await ready(page);
  await runCell(page, 0);
  const view = page.locator('.jp-OutputArea-output .jp-MegalensView');
  await expect(view.locator('.jp-MegalensPlot canvas').first()).toBeVisible();
  await runCell(page, 1);
  await expect(page.locator('.jp-Notebook-ExecutionIndicator')).toHaveAttribute('data-status', 'busy');
  await moves(view);
  await expect(page.locator('.jp-Notebook-ExecutionIndicator')).toHaveAttribute('data-status', 'busy');
  writeFileSync(join(lab.folder, 'enough'), '');
  await ready(page);
});

test('the kernel changes the view and the view tells the kernel', async ({ open, lab }) => {
  writeNotebook(lab, 'both.ipynb', [
    'import megalens\nrun = megalens.connect("gpt-notebook")\nview = run.heatmap("HiddenStates", layers="1")\nview',
    'view.layers = "2-3"',
    'print("layers are", view.layers)'
  ]);
  const page = await open('both.ipynb');
  await ready(page);
  await runCell(page, 0);
  const view = page.locator('.jp-OutputArea-output .jp-MegalensView');
  await expect(view.getByRole('combobox', { name: 'Layers' })).toHaveValue('1');
  await runCell(page, 1);
  await expect(view.getByRole('combobox', { name: 'Layers' })).toHaveValue('2-3');
  await view.getByRole('combobox', { name: 'Layers' }).fill('3');
  await view.getByRole('combobox', { name: 'Layers' }).press('Enter');
  await expect(view.locator('.jp-MegalensView-title')).toContainText(/layer 3/i);
  // The widget sends what was chosen once the kernel has answered what it sent before.
  await expect(async () => {
    await runCell(page, 2);
    const said = page.locator('.jp-OutputArea-output', { hasText: 'layers are' });
    await expect(said).toContainText('layers are 3', { timeout: 5000 });
  }).toPass();
});

test('a view survives a page reload and a kernel restart', async ({ open, lab }) => {
  writeNotebook(lab, 'survive.ipynb', [
    'import megalens\nrun = megalens.connect("gpt-notebook")\nrun.trend("HiddenStates")'
  ]);
  const page = await open('survive.ipynb');
  await ready(page);
  await runCell(page, 0);
  const plot = page.locator('.jp-OutputArea-output .jp-MegalensView .jp-MegalensPlot canvas').first();
  await expect(plot).toBeVisible({ timeout: 30_000 });
  await page.keyboard.press('Control+s');
  await expect(page.locator('.jp-mod-dirty')).toHaveCount(0);
  await page.reload();
  await expect(plot).toBeVisible();
  await runFromPalette(page, 'Restart Kernel…');
  await page.locator('.jp-Dialog').getByRole('button', { name: 'Confirm Kernel Restart' }).click();
  await ready(page);
  await expect(plot).toBeVisible();
  // It goes on without any cell being run again.
  const title = page.locator('.jp-OutputArea-output .jp-MegalensView-title');
  await expect(title).not.toHaveText((await title.textContent()) ?? '');
});

async function moves(view: Locator): Promise<void> {
  const step = view.locator('.jp-MegalensSteps-text');
  const before = (await step.textContent()) ?? '';
  await expect(step).not.toHaveText(before);
}

import { readFileSync } from 'fs';
import type { Locator } from '@playwright/test';
import { expect, load, showPanel, test, writeNotebook, type ITraining } from '../lab';
import { picture } from '../picture';

test.describe.configure({ mode: 'serial' });

let training: ITraining;

test.beforeAll(async ({ lab }) => {
  training = await lab.train('gpt-views', { traced: true, monitor: true });
});

test.afterAll(async () => {
  await training.process.end();
});

test('no chart code is loaded until a view is opened', async ({ page, lab }) => {
  const files: string[] = [];
  page.on('response', response => {
    const [, name] = /extensions\/megalens\/static\/([^.]+)/.exec(response.url()) ?? [];
    if (name !== undefined) {
      files.push(name);
    }
  });
  // `labextension.config.cjs` names the chart libraries so.
  const charts = () => files.filter(name => name === 'vega').length;
  await load(page, lab);
  await expect.poll(() => files.length).toBeGreaterThan(0);
  await showPanel(page);
  await expect(page.getByRole('option', { name: 'gpt-views' })).toBeVisible();
  expect(charts()).toBe(0);
  await page.getByRole('button', { name: 'Heatmap', exact: true }).click();
  await expect.poll(charts).toBeGreaterThan(0);
});

test('views open as tabs and follow the training', async ({ open }) => {
  const page = await open();
  const panel = await showPanel(page);
  await expect(panel.locator('.jp-MegalensFigures-loss')).toBeVisible();
  await panel.getByRole('button', { name: 'Heatmap', exact: true }).click();
  const heatmap = page.locator('.jp-MegalensViewTab:visible .jp-MegalensView');
  await expect(heatmap.locator('.jp-MegalensPlot canvas, .jp-MegalensPlot svg').first()).toBeVisible();
  const step = heatmap.locator('.jp-MegalensSteps-text');
  const before = await step.textContent();
  await expect(step).not.toHaveText(before ?? '');
  await panel.getByRole('button', { name: 'Trend', exact: true }).click();
  await expect(page.getByRole('tab', { name: /Trend/ })).toBeVisible();
  await expect(page.locator('.jp-MegalensViewTab:visible .jp-MegalensPlot canvas').first()).toBeVisible();
  await panel.getByRole('button', { name: /Open the scalars|Loss over steps/ }).click();
  await expect(page.getByRole('tab', { name: /Scalars/ })).toBeVisible();
  await expect(page.locator('.jp-MegalensViewTab:visible .jp-MegalensPlot canvas').first()).toBeVisible();
});

test('a view opens beside the notebook, the next ones with it, and arrangements in one click', async ({
  open,
  lab
}) => {
  writeNotebook(lab, 'beside.ipynb', ['1']);
  const page = await open('beside.ipynb');
  const panel = await showPanel(page);
  await expect(panel.locator('.jp-MegalensFigures-loss')).toBeVisible();
  const left = async (of: Locator) => Math.round((await of.boundingBox())?.x ?? NaN);
  await panel.getByRole('button', { name: 'Trend', exact: true }).click();
  const shown = page.locator('.jp-MegalensViewTab:visible');
  await expect(shown.locator('.jp-MegalensPlot canvas').first()).toBeVisible();
  await expect(page.locator('.jp-Notebook')).toBeVisible();
  const beside = await left(shown);
  expect(beside).toBeGreaterThan((await left(page.locator('.jp-Notebook'))) + 200);
  await expect(page.getByRole('tab', { name: 'Hidden states · Trend' })).toBeVisible();
  await panel.getByRole('button', { name: 'Heatmap', exact: true }).click();
  await expect(page.getByRole('tab', { name: /Heatmap/, selected: true })).toBeVisible();
  await expect(shown).toHaveCount(1);
  expect(await left(shown)).toBe(beside);
  await page.setViewportSize({ width: 1600, height: 1000 });
  await open();
  await page.setViewportSize({ width: 1600, height: 1000 });
  await showPanel(page);
  await panel.getByRole('button', { name: 'Watch a training' }).click();
  await expect(shown).toHaveCount(3);
  await expect(shown.locator('.jp-MegalensPlot canvas').first()).toBeVisible();
  await picture(page, 'lab-watch');
});

test('the same view is not opened twice', async ({ open }) => {
  const page = await open();
  const panel = await showPanel(page);
  const button = panel.getByRole('button', { name: 'Heatmap', exact: true });
  await button.click();
  await expect(page.getByRole('tab', { name: /Heatmap/ })).toHaveCount(1);
  await panel.getByRole('button', { name: 'Trend', exact: true }).click();
  await expect(page.getByRole('tab', { name: /Trend/, selected: true })).toBeVisible();
  await button.click();
  await expect(page.getByRole('tab', { name: /Heatmap/, selected: true })).toBeVisible();
  await expect(page.getByRole('tab', { name: /Heatmap/ })).toHaveCount(1);
});

test('tabs, their options and the chosen run are there after a reload @everywhere', async ({ open, lab }) => {
  const page = await open();
  const panel = await showPanel(page);
  await expect(panel.locator('.jp-MegalensFigures-loss')).toBeVisible();
  await panel.getByRole('button', { name: 'Heatmap', exact: true }).click();
  const view = page.locator('.jp-MegalensViewTab:visible .jp-MegalensView');
  const layers = view.getByRole('combobox', { name: 'Layers' });
  await expect(layers).toBeVisible();
  await layers.fill('all');
  await layers.press('Enter');
  await expect(view.locator('.jp-MegalensView-title')).toContainText(/layers? 0/i);
  // JupyterLab saves its layout and the workspace a moment after a change.
  const saved = async () => {
    const answer = await page.request.get(`${lab.url}lab/api/workspaces/default`);
    return JSON.stringify(((await answer.json()) as { data: unknown }).data);
  };
  await expect.poll(saved).toContain('"layers":"all"');
  await expect.poll(saved).toMatch(/"widgets":\[[^\]]*megalens-view-/);
  await expect.poll(saved).toContain('"current":"megalens-panel"');
  await page.reload();
  await expect(page.locator('#megalens-panel .jp-MegalensPanel')).toBeVisible();
  const runs = page.locator('#megalens-panel').getByRole('listbox').first();
  await expect(runs.getByRole('option', { selected: true })).toContainText('gpt-views');
  await expect(page.getByRole('tab', { name: /Hidden states · Heatmap/ })).toBeVisible();
  await expect(view.getByRole('combobox', { name: 'Layers' })).toHaveValue('all');
  await expect(view.locator('.jp-MegalensPlot canvas, .jp-MegalensPlot svg').first()).toBeVisible();
});

test('a link to a view opens it in another window', async ({ open, session }) => {
  const page = await open();
  const panel = await showPanel(page);
  await panel.getByRole('button', { name: 'Heatmap', exact: true }).click();
  await page.getByRole('tab', { name: /Heatmap/ }).click({ button: 'right' });
  await page.getByText('Copy Link to View').click();
  const copied = (): Promise<string> => page.evaluate(() => navigator.clipboard.readText());
  await expect.poll(copied).toContain('/lab?megalens-view=');
  const link = await copied();
  const other = await session.newPage();
  await other.goto(link);
  await expect(other.getByRole('tab', { name: 'Hidden states · Heatmap' })).toBeVisible({ timeout: 60_000 });
  await expect(other.locator('.jp-MegalensViewTab:visible .jp-MegalensPlot canvas').first()).toBeVisible();
  expect(other.url()).not.toContain('megalens-view');
  await other.close();
});

test('a non-finite entry turns the panel red and leads to its place', async ({ open }) => {
  const page = await open();
  const panel = await showPanel(page);
  await expect(panel.getByText('non-finite')).toBeVisible();
  training.spoil();
  const button = panel.getByRole('button', {
    name: /non-finite .* first at step \d+, layer \d, Hidden states/
  });
  await expect(button).toBeVisible();
  const layer = /layer (\d)/.exec((await button.textContent()) ?? '')?.[1] ?? '';
  await button.click();
  const view = page.locator('.jp-MegalensViewTab:visible .jp-MegalensView');
  await expect(view.getByRole('combobox', { name: 'Layers' })).toHaveValue(layer);
  await expect(view.locator('.jp-MegalensView-caption')).toContainText(/not finite .*NaN/);
});

test('a report is exported and downloaded', async ({ open }) => {
  const page = await open();
  const panel = await showPanel(page);
  await expect(panel.locator('.jp-MegalensFigures-loss')).toBeVisible();
  await panel.getByRole('button', { name: 'Export report…' }).click();
  const dialog = page.locator('.jp-Dialog');
  await expect(dialog.locator('code').first()).toContainText('run.');
  const downloading = page.waitForEvent('download', { timeout: 60_000 });
  await dialog.getByRole('button', { name: 'Export' }).click();
  const download = await downloading;
  expect(download.suggestedFilename()).toMatch(/\.html$/);
  const html = readFileSync(await download.path(), 'utf-8');
  expect(html).toContain('gpt-views');
  expect(html).toContain('<svg');
});

test('a long trend of what the compressor kept is summed in a worker', async ({ open }) => {
  const page = await open();
  const panel = await showPanel(page);
  const option = panel.getByRole('option', { name: 'gpt-views' });
  // 4 layers × 32 positions × 43 tiles a step: past 100,000 numbers.
  await expect(option).toContainText(/step (2[5-9]|[3-9]\d|\d{3,})/, { timeout: 90_000 });
  await panel.getByRole('button', { name: 'Trend', exact: true }).click();
  const opened = page.waitForEvent('worker');
  await page.locator('.jp-MegalensViewTab:visible').getByLabel('Statistic').selectOption('kept_rms');
  const worker = await opened;
  await expect.poll(() => worker.evaluate(() => typeof globalThis.onmessage)).toBe('function');
  await expect(page.locator('.jp-MegalensViewTab:visible .jp-MegalensPlot canvas').first()).toBeVisible();
});

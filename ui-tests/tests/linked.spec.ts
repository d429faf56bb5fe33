import { execFileSync } from 'child_process';
import { readFileSync, writeFileSync } from 'fs';
import { join, resolve } from 'path';
import type { Locator, Page } from '@playwright/test';
import {
  expect,
  ready,
  runCell,
  runFromPalette,
  shots,
  showPanel,
  test,
  writeNotebook,
  type ITraining
} from '../lab';
import { picture } from '../picture';

const ROOT = resolve(__dirname, '../..');

test.describe.configure({ mode: 'serial' });

let training: ITraining;

test.beforeAll(async ({ lab }) => {
  training = await lab.train('gpt-linked', { traced: true });
});

test.afterAll(async () => {
  await training.process.end();
});

/** Show the panel with the run of these tests chosen. */
async function panelOf(page: Page): Promise<Locator> {
  const panel = await showPanel(page);
  await panel.getByRole('option', { name: 'gpt-linked' }).click();
  // The whole panel of this run is there: nothing in it moves any more.
  await expect(panel.getByRole('region', { name: 'gpt-linked' })).toBeVisible();
  await expect(panel.getByRole('checkbox', { name: 'Hidden states' })).toBeEnabled();
  return panel;
}

/** Have the page wait for what the kernel holds as long as it takes; what is inserted after half a second without an answer is shown by a spec of its own. */
const patient = (page: Page): Promise<void> =>
  page.evaluate(() => {
    const set = window.setTimeout.bind(window);
    const patient = (done: () => void, delay?: number): number => set(done, delay === 500 ? 60_000 : delay);
    Object.assign(window, { setTimeout: patient });
  });

const lastCell = (page: Page): Locator => page.locator('.jp-Notebook .jp-CodeCell .cm-content').last();

test('steps chosen in a tab filter a cell’s view of the same run, until they are taken back there', async ({
  open,
  lab
}) => {
  writeNotebook(lab, 'linked.ipynb', [
    'import megalens\nrun = megalens.connect("gpt-linked")\nrun.scalars_view(["loss"])'
  ]);
  const page = await open('linked.ipynb');
  await ready(page);
  await runCell(page, 0);
  const cell = page.locator('.jp-OutputArea-output .jp-MegalensView');
  await expect(cell.locator('.jp-MegalensPlot canvas').first()).toBeVisible();
  const panel = await panelOf(page);
  await panel.getByRole('button', { name: 'Trend', exact: true }).click();
  const tab = page.locator('.jp-MegalensViewTab:visible .jp-MegalensView');
  const stage = tab.locator('.jp-MegalensStage');
  await expect(tab.locator('.jp-MegalensPlot canvas').first()).toBeVisible();
  await expect(tab.locator('.jp-MegalensView-title')).toContainText(/to \d{2,}/);
  const box = (await stage.boundingBox())!;
  await page.keyboard.down('Shift');
  await page.mouse.move(box.x + box.width * 0.3, box.y + 120);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.4, box.y + 120);
  await page.mouse.move(box.x + box.width * 0.6, box.y + 120);
  await page.mouse.up();
  await page.keyboard.up('Shift');
  const chip = tab.getByRole('button', { name: /^steps \d+–\d+/ });
  await expect(chip).toBeVisible();
  await expect(tab.locator('.jp-MegalensBand')).toHaveCount(1);
  const [, first, last] = /steps (\d+)–(\d+)/.exec((await chip.textContent()) ?? '') ?? [];
  await picture(page, 'linked-tab-light');
  await page.getByRole('tab', { name: 'linked.ipynb' }).click();
  await expect(cell.locator('.jp-MegalensView-title')).toContainText(`steps ${first} to ${last}`);
  // A view of several parts has one toolbar for all of them.
  const output = page.locator('.jp-OutputArea-output');
  await shots(page, 'linked-cell');
  await output.getByRole('button', { name: /^steps \d+–\d+/ }).click();
  await expect(cell.locator('.jp-MegalensView-title')).not.toContainText(`steps ${first} to ${last}`);
  await expect(output.getByRole('button', { name: /^steps \d+–\d+/ })).toHaveCount(0);
});

test('a view’s button is dragged into a notebook and its cell runs', async ({ open, lab }) => {
  writeNotebook(lab, 'drag.ipynb', ['1 + 1']);
  const page = await open('drag.ipynb');
  await ready(page);
  const panel = await panelOf(page);
  const button = panel.getByRole('button', { name: 'Trend', exact: true });
  // Playwright hovers over what has come to rest.
  await button.hover();
  const from = (await button.boundingBox())!;
  const to = (await page.locator('.jp-Notebook .jp-CodeCell').first().boundingBox())!;
  await page.mouse.move(from.x + 10, from.y + 8);
  await page.mouse.down();
  await page.mouse.move(from.x + 30, from.y + 8, { steps: 4 });
  await expect(page.locator('.jp-MegalensDragImage')).toBeVisible();
  await page.mouse.move(to.x + to.width / 2, to.y + to.height / 2, { steps: 8 });
  await picture(page, 'drag-light');
  await page.mouse.up();
  await expect(page.locator('.jp-Notebook .jp-CodeCell')).toHaveCount(2);
  await expect(page.locator('.jp-MegalensDragImage')).toHaveCount(0);
  // A drag is no click.
  await expect(page.getByRole('tab', { name: /Trend/ })).toHaveCount(0);
  const cell = page.locator('.jp-Notebook .jp-CodeCell', { hasText: 'run.trend' });
  await expect(cell.locator('.cm-content')).toContainText(`run = megalens.connect("${training.id}")`);
  const cells = await page.locator('.jp-Notebook .jp-Cell').allTextContents();
  await runCell(
    page,
    cells.findIndex(text => text.includes('run.trend'))
  );
  await expect(cell.locator('.jp-MegalensPlot canvas').first()).toBeVisible({ timeout: 40_000 });
});

test('opening the quickstart notebook does not change it', async ({ open, lab }) => {
  const notebook = JSON.parse(readFileSync(join(ROOT, 'examples/quickstart.ipynb'), 'utf-8')) as {
    metadata: { language_info: { version: string } };
  };
  // JupyterLab writes the kernel's Python version into every notebook that names another one.
  notebook.metadata.language_info.version = execFileSync(join(ROOT, '.venv/bin/python'), [
    '-c',
    'import platform; print(platform.python_version())'
  ])
    .toString()
    .trim();
  writeFileSync(join(lab.folder, 'quickstart.ipynb'), JSON.stringify(notebook, null, 1));
  const page = await open('quickstart.ipynb');
  await ready(page);
  await expect(page.locator('.jp-Notebook .jp-CodeCell').first()).toBeVisible();
  await expect(page.getByRole('tab', { name: 'quickstart.ipynb' })).toBeVisible();
  await expect(page.locator('.jp-mod-dirty')).toHaveCount(0);
});

test('the tab in front is inserted by a command, and by its title, as the notebook needs it', async ({
  open,
  lab
}) => {
  writeNotebook(lab, 'insert.ipynb', [`import megalens\nrun = megalens.connect("${training.id}")`]);
  const page = await open('insert.ipynb');
  await ready(page);
  await runCell(page, 0);
  await expect(page.locator('.jp-Notebook .jp-InputPrompt').first()).toHaveText(/\[\d+\]:/);
  await patient(page);
  const panel = await panelOf(page);
  await panel.getByRole('button', { name: 'Scalars', exact: true }).click();
  await expect(page.locator('.jp-MegalensViewTab:visible .jp-MegalensPlot canvas').first()).toBeVisible();
  await runFromPalette(page, 'Insert View into Notebook');
  await expect(page.locator('.jp-Notebook .jp-CodeCell')).toHaveCount(2);
  await expect(lastCell(page)).toHaveText('run.scalars_view()');
  // The same from the context menu of the panel's button.
  await panel.getByRole('button', { name: 'Heatmap', exact: true }).click({ button: 'right' });
  await page.getByRole('menuitem', { name: 'Insert View into Notebook' }).click();
  await expect(page.locator('.jp-Notebook .jp-CodeCell')).toHaveCount(3);
  await expect(lastCell(page)).toHaveText('run.heatmap("HiddenStates")');
});

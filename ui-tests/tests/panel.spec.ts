import { expect, logIn, runFromPalette, settled, showPanel, test, type ITraining } from '../lab';
import { picture } from '../picture';

test.describe.configure({ mode: 'serial' });

let training: ITraining;

test.beforeAll(async ({ lab }) => {
  training = await lab.train('gpt-panel');
});

test.afterAll(async () => {
  await training.process.end();
});

test('a run appears by itself, is chosen and shows its numbers @everywhere', async ({ open }) => {
  const panel = await showPanel(await open());
  const run = panel.getByRole('option', { name: 'gpt-panel' });
  await expect(run).toHaveAttribute('aria-selected', 'true');
  await expect(run).toContainText('live');
  await expect(panel.locator('.jp-MegalensFigures-model')).toHaveText(
    '4 layers · 128 hidden · TP 1 PP 1 DP 1'
  );
  await expect(panel.locator('.jp-MegalensFigures-loss')).toContainText(/loss \d/);
  await expect(panel.locator('.jp-MegalensSparkline path')).toHaveAttribute('d', /L/);
  const step = async () => Number((await run.textContent())?.replace(/\D*step\D*/, '').replace(/\D/g, ''));
  const before = await step();
  await expect.poll(step).toBeGreaterThan(before);
});

test('ticking a flag and applying it says at which step, then brings its frames', async ({ open }) => {
  const page = await open();
  const panel = await showPanel(page);
  await expect(panel.getByText('nothing is traced yet')).toBeVisible();
  await panel.getByRole('checkbox', { name: 'MLP1 output' }).check();
  // The second step of the run has told how long a sample is, and that a step is one micro-batch.
  await expect(panel.locator('.jp-MegalensApply-size')).toHaveText(/≈ 36\.5\skB\/step/);
  await panel.getByRole('button', { name: 'Apply' }).click();
  await expect(panel.locator('.jp-MegalensApply-state')).toHaveText(/Applied at step \d/);
  await expect(panel.locator('.jp-MegalensFigures')).toContainText('probes 4/4');
  await expect(panel.locator('.jp-MegalensFigures')).toContainText(/kB\/step/);
  await panel.getByRole('checkbox', { name: 'MLP2 output' }).check();
  // 2 flags × 4 layers × 32 positions × 64 tiles × 4 bytes, and the rows themselves.
  await expect(panel.locator('.jp-MegalensApply-size')).toHaveText(/≈ 70\.\d kB\/step/);
});

test('a bad reduction is shown at its field with the column, and tracing goes on', async ({ open }) => {
  const panel = await showPanel(await open());
  await panel.getByRole('button', { name: /Setting of MLP1 output/ }).click();
  const field = panel.getByLabel('Reduction');
  await field.fill('data.nothing()');
  await panel.getByRole('button', { name: 'Apply' }).click();
  await expect(field).toHaveAttribute('aria-invalid', 'true');
  const fault = panel.locator('.jp-MegalensField-fault');
  await expect(fault.locator('pre')).toHaveText(/data\.nothing\(\)\n {5}\^/);
  await picture(panel, 'panel-fault');
  await expect(panel.locator('.jp-MegalensApply-state')).toHaveText(
    'Not applied. Tracing goes on as it was.'
  );
  await panel.getByRole('button', { name: 'Revert' }).click();
  await expect(field).toHaveValue('rms');
  await expect(fault).toHaveCount(0);
  await panel.getByRole('button', { name: /Setting of MLP1 output/ }).click();
});

test('layers that do not exist are shown at their field', async ({ open }) => {
  const panel = await showPanel(await open());
  await panel.getByRole('button', { name: /Setting of MLP1 output/ }).click();
  const field = panel.getByLabel('Layers');
  await field.fill('3-9');
  await expect(field).toHaveAttribute('aria-invalid', 'true');
  const fault = panel.locator('.jp-MegalensField-fault');
  await expect(fault).toContainText('3-9: this model has layers 0 to 3');
  await expect(panel.getByRole('button', { name: 'Apply' })).toHaveAttribute('aria-disabled', 'true');
  await fault.getByRole('button', { name: '3', exact: true }).click();
  await expect(field).toHaveValue('3');
  await expect(field).toHaveAttribute('aria-invalid', 'false');
  await panel.getByRole('button', { name: 'Revert' }).click();
  await expect(field).toHaveValue('all');
});

test('another viewer’s change is told with who and when', async ({ open, browser, lab }) => {
  const panel = await showPanel(await open());
  await expect(panel.getByRole('checkbox', { name: 'MLP1 output' })).toBeChecked();
  const other = await browser.newContext();
  try {
    const page = await other.newPage();
    await logIn(page, lab);
    await page.goto(`${lab.url}lab/workspaces/other?reset`);
    await settled(page);
    const second = await showPanel(page);
    await second.getByRole('checkbox', { name: 'MLP2 output' }).check();
    await second.getByRole('button', { name: 'Apply' }).click();
    await expect(second.locator('.jp-MegalensApply-state')).toHaveText(/Applied at step/);
    await expect(second.getByText('changed the settings')).toHaveCount(0);
  } finally {
    await other.close();
  }
  await expect(panel.getByText(/changed the settings at step \d.*MLP2 output rms of 64 tiles/)).toBeVisible();
  await expect(panel.getByRole('checkbox', { name: 'MLP2 output' })).toBeChecked();
  await panel.getByRole('button', { name: 'Dismiss' }).click();
  await expect(panel.getByText('changed the settings')).toHaveCount(0);
});

test('the panel is used with the keyboard alone', async ({ open }) => {
  const page = await open();
  const panel = await showPanel(page);
  const run = panel.getByRole('option', { name: 'gpt-panel' });
  const flag = panel.getByRole('checkbox', { name: 'Hidden states' });
  await expect(flag).toBeEnabled();
  await run.focus();
  // The list is asked for anew every two seconds and counts steps on; the place in it is kept.
  const before = (await run.textContent()) ?? '';
  await expect(run).not.toHaveText(before);
  await expect(run).toBeFocused();
  const order: string[] = [];
  while (order.length < 40 && !order.at(-1)?.startsWith('Trace')) {
    await page.keyboard.press('Tab');
    order.push(
      await panel.evaluate(node => {
        const at = document.activeElement;
        return at !== null && node.contains(at) ? at.textContent || at.id : 'outside the panel';
      })
    );
  }
  // Recordings of tests before this one can be tidied up, from a button that stands before it.
  expect(order.find(each => each !== 'Keep newest…')).toContain('Connect to address');
  expect(order.join(' | ')).toMatch(/gpt-panel.*Views.*Heatmap.*Trace/);
  expect(order).not.toContain('outside the panel');
  await flag.focus();
  await page.keyboard.press('Space');
  await expect(flag).toBeChecked();
  await panel.getByRole('button', { name: 'Apply' }).focus();
  await page.keyboard.press('Enter');
  await expect(panel.locator('.jp-MegalensApply-state')).toHaveText(/Applied at step \d/);
  await expect(panel.getByRole('button', { name: 'Apply' })).toBeFocused();
});

test('a run is renamed, and its code copied, from its context menu', async ({ open }) => {
  const page = await open();
  const panel = await showPanel(page);
  await panel.getByRole('option', { name: 'gpt-panel' }).click({ button: 'right' });
  await page.getByRole('menuitem', { name: /Copy/ }).click();
  await expect
    .poll(() => page.evaluate(() => navigator.clipboard.readText()))
    .toBe(`run = megalens.connect("${training.id}")`);
  await panel.getByRole('option', { name: 'gpt-panel' }).click({ button: 'right' });
  await page.getByRole('menuitem', { name: 'Rename…' }).click();
  await page.locator('.jp-Dialog input').fill('gpt-renamed');
  await page.locator('.jp-Dialog').getByRole('button', { name: 'Rename' }).click();
  await expect(panel.getByRole('option', { name: 'gpt-renamed' })).toBeVisible();
});

test('the panel, its settings and its views are copied as Python', async ({ open }) => {
  const page = await open();
  const panel = await showPanel(page);
  await expect(panel.getByRole('checkbox', { name: 'MLP1 output' })).toBeChecked();
  await panel.getByRole('button', { name: 'Copy as code' }).click();
  const code = () => page.evaluate(() => navigator.clipboard.readText());
  await expect.poll(code).toContain('from megalens import Tile');
  expect(await code()).toMatch(/run\.configure\(.*MLP1_mat_mul=Tile\(tiles=64, reduction="rms"\)/);
});

test('commands are in the palette, and the launcher has a card', async ({ open }) => {
  const page = await open();
  await page.locator('.jp-LauncherCard', { hasText: 'Training Runs' }).click();
  await expect(page.locator('#megalens-panel .jp-MegalensPanel')).toBeVisible();
  await runFromPalette(page, 'Open Loss and Other Scalars');
  await expect(page.getByRole('tab', { name: 'Scalars' })).toBeVisible();
});

test('all runs are a table in a tab, which filters and marks', async ({ open }) => {
  const page = await open();
  const panel = await showPanel(page);
  await panel.getByRole('button', { name: 'All runs as a table' }).click();
  const table = page.locator('.jp-MegalensRunsTable');
  await expect(table.locator('tbody tr').first()).toBeVisible();
  await table.getByRole('searchbox').fill('no-run-has-this-name');
  await expect(table.getByText('No run matches the filter.')).toBeVisible();
  await table.getByRole('searchbox').fill('');
  const box = table.locator('tbody input[type=checkbox]').first();
  await box.check();
  await expect(box).toBeChecked();
});

test('a hub elsewhere is refused unless the administrator allows it', async ({ open }) => {
  const page = await open();
  const panel = await showPanel(page);
  await panel.getByRole('button', { name: /Connect to address/ }).click();
  const dialog = page.locator('.jp-Dialog');
  // A peer's hub has no token, and one that generates needs something to begin with.
  await dialog.getByLabel('Protocol').selectOption('MegatronApp inference');
  await expect(dialog.getByLabel('Token')).toHaveCount(0);
  await expect(dialog.getByLabel('Prompt')).toBeVisible();
  await picture(page, 'connect-dialog');
  await dialog.getByLabel('Protocol').selectOption('Megalens');
  await dialog.getByLabel('Address').fill('ws://127.0.0.1:1');
  await dialog.getByLabel('Token').fill('anything');
  await dialog.getByRole('button', { name: 'Connect' }).click();
  await expect(page.locator('.jp-Dialog')).toContainText('The hub could not be reached');
});

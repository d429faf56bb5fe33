import { mkdirSync, readdirSync, rmSync } from 'fs';
import { join, resolve } from 'path';
import { expect, setTheme, showPanel, test } from '../lab';

const SHOTS = resolve(__dirname, '../screenshots');

test.describe.configure({ mode: 'serial' });

test.beforeAll(async ({ lab }) => {
  mkdirSync(SHOTS, { recursive: true });
  // What other tests left: the panel offers the demo where there is no run yet. A hub writes once more when it ends.
  const ended = (): number => {
    const hubs = lab.hubs();
    hubs.forEach(({ pid }) => process.kill(pid));
    return hubs.length;
  };
  await expect.poll(ended, { timeout: 30_000 }).toBe(0);
  const runs = join(lab.folder, 'megalens-runs');
  for (const name of readdirSync(runs)) {
    rmSync(join(runs, name), { recursive: true, force: true });
  }
});

test('an empty panel starts the demo, which appears by itself, and stops it', async ({ open }) => {
  test.setTimeout(180_000);
  const page = await open();
  const panel = await showPanel(page);
  const start = panel.getByRole('button', { name: 'Start the demo' });
  await expect(start).toBeVisible({ timeout: 30_000 });
  await page.screenshot({ path: join(SHOTS, 'demo-offered-light.png') });
  await setTheme(page, 'JupyterLab Dark');
  await showPanel(page);
  await page.screenshot({ path: join(SHOTS, 'demo-offered-dark.png') });
  await start.click();
  await expect(panel.getByText('The demo is starting.')).toBeVisible();
  await page.screenshot({ path: join(SHOTS, 'demo-starting-dark.png') });
  const option = panel.getByRole('option', { name: /gpt-demo/ });
  await expect(option).toBeVisible({ timeout: 90_000 });
  await expect(option).toHaveAttribute('aria-selected', 'true');
  await expect(option).toContainText(/step [1-9]/, { timeout: 60_000 });
  await expect(panel.getByText('The demo is training.')).toBeVisible();
  await page.screenshot({ path: join(SHOTS, 'demo-running-dark.png') });
  await setTheme(page, 'JupyterLab Light');
  await expect(page.locator('#jupyterlab-splash')).toHaveCount(0);
  await showPanel(page);
  await page.screenshot({ path: join(SHOTS, 'demo-running-light.png') });
  await panel.getByRole('button', { name: 'Stop the demo' }).click();
  await expect(panel.getByText('The demo is training.')).toHaveCount(0, { timeout: 30_000 });
  await expect(option).toContainText(/recorded|finished/, { timeout: 30_000 });
  // With a run there, the demo is not offered any more.
  await expect(start).toHaveCount(0);
});

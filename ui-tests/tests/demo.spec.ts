import { readdirSync, rmSync } from 'fs';
import { join } from 'path';
import { expect, shots, showPanel, test } from '../lab';
import { picture } from '../picture';

test.describe.configure({ mode: 'serial' });

test.beforeAll(async ({ lab }) => {
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
  await shots(page, 'demo-offered');
  await start.click();
  await expect(panel.getByText('The demo is starting.')).toBeVisible();
  await picture(page, 'demo-starting-light');
  const option = panel.getByRole('option', { name: /gpt-demo/ });
  await expect(option).toBeVisible({ timeout: 90_000 });
  await expect(option).toHaveAttribute('aria-selected', 'true');
  await expect(option).toContainText(/step [1-9]/, { timeout: 60_000 });
  await expect(panel.getByText('The demo is training.')).toBeVisible();
  await shots(page, 'demo-running');
  await panel.getByRole('button', { name: 'Stop the demo' }).click();
  await expect(panel.getByText('The demo is training.')).toHaveCount(0, { timeout: 30_000 });
  await expect(option).toContainText(/recorded|finished/, { timeout: 30_000 });
  // With a run there, the demo is not offered any more.
  await expect(start).toHaveCount(0);
});

import type { Locator } from '@playwright/test';
import { expect, narrow, shots, showPanel, test, type ITraining } from '../lab';
import { picture } from '../picture';

test.describe.configure({ mode: 'serial' });

let training: ITraining;

test.beforeAll(async ({ lab }) => {
  training = await lab.train('gpt-control', { traced: true, allowing: true, rate: 8 });
});

test.afterAll(async () => {
  await training.process.end();
});

/** The run's row, its step and its chosen state. */
function run(panel: Locator): { row: Locator; step: () => Promise<number> } {
  const row = panel.getByRole('option', { name: 'gpt-control' });
  const step = async () => Number((await row.textContent())?.replace(/.*step/, '').replace(/\D/g, ''));
  return { row, step };
}

test('a training is paused after a question, stepped and resumed with the keyboard', async ({ open }) => {
  const page = await open();
  const panel = await showPanel(page);
  const { row, step } = run(panel);
  await expect(row).toContainText('live');
  await panel.getByRole('button', { name: 'Pause', exact: true }).focus();
  await page.keyboard.press('Enter');
  await expect(panel.getByRole('button', { name: 'Keep training' })).toBeFocused();
  await picture(panel, 'panel-pause-question');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await expect(row).toContainText('paused');
  await expect(panel.getByText(/Training was paused by you at .* and waits after step/)).toBeVisible();
  const resume = panel.getByRole('button', { name: 'Resume' });
  await expect(resume).toBeFocused();
  // Where it waits is told with the next status, a second later at most.
  let before = NaN;
  const stands = async (): Promise<boolean> => {
    const last = before;
    before = await step();
    return before === last;
  };
  await expect.poll(stands, { intervals: [1500] }).toBe(true);
  await panel.getByLabel('Steps to take').fill('3');
  await panel.getByRole('button', { name: 'Step', exact: true }).click();
  await expect.poll(step).toBe(before + 3);
  await picture(panel, 'panel-paused');
  await resume.focus();
  await page.keyboard.press('Enter');
  await expect(row).toContainText('live');
  await expect.poll(step).toBeGreaterThan(before + 3);
});

test('an armed perturbation stands over the whole panel until it ends by itself', async ({ open }) => {
  const page = await open();
  const panel = await showPanel(page);
  const { row } = run(panel);
  await panel.getByRole('button', { name: /^Perturb(?!ation)/ }).click();
  await panel.getByRole('checkbox', { name: /MLP output/ }).check();
  await panel.getByLabel('Coefficient').fill('0.1');
  const layers = panel.getByRole('group', { name: /Perturbation at MLP output/ }).getByLabel('Layers');
  await layers.fill('2-9');
  await panel.getByLabel('Steps', { exact: true }).fill('40');
  const arm = async () => {
    await panel.getByRole('button', { name: 'Arm…' }).click();
    await panel.getByRole('button', { name: 'Arm', exact: true }).click();
  };
  await arm();
  await expect(layers).toHaveAttribute('aria-invalid', 'true');
  await layers.fill('2-3');
  await picture(panel, 'panel-perturb-form');
  await arm();
  const banner = panel.getByRole('region', { name: 'Perturbation' });
  await expect(banner).toContainText(
    /MLP output.*: Additive Gaussian noise, coefficient 0.1, layers 2-3 · seed 0 · armed by you/
  );
  await expect(banner).toContainText(/[1-9]\d* touched so far/);
  await expect(row).toContainText('perturbed');
  await shots(page, 'panel-perturbed', panel);
  await expect(banner).toHaveCount(0, { timeout: 30_000 });
  await expect(row).toContainText('live');
  await expect(panel.getByText('40 steps of this run were perturbed.')).toBeVisible();
  await panel.getByRole('button', { name: /^Perturb(?!ation)/ }).click();
});

test('a silent rank appears with its name, and the budget says what was given up', async ({ open, lab }) => {
  const [job, page] = await Promise.all([lab.train('gpt-job', { job: true }), open()]);
  const panel = await showPanel(page);
  await panel.getByRole('option', { name: 'gpt-job' }).click();
  await expect(panel.getByRole('button', { name: '8 ranks · TP 2 PP 2 DP 2' })).toBeVisible();
  await panel.getByRole('button', { name: /^Perturb(?!ation)/ }).click();
  await expect(panel.getByText('These weights are sharded.')).toBeVisible();
  await panel.getByRole('button', { name: /^Perturb(?!ation)/ }).click();
  await panel.getByRole('button', { name: /Setting of Hidden states/ }).click();
  await panel.getByRole('checkbox', { name: 'backward' }).check();
  await panel.getByLabel('Replicas').selectOption('all');
  // 2 passes × 2 replicas × 4 layers.
  await expect(panel.locator('.jp-MegalensApply-size')).toHaveText(/≈ \d+(\.\d)? kB\/step/);
  await panel.getByRole('button', { name: 'Apply' }).click();
  await expect(panel.locator('.jp-MegalensApply-state')).toHaveText(/Applied at step/);
  await panel.getByRole('button', { name: /overhead/ }).click();
  await panel.getByLabel('Budget, %').fill('0.5');
  await panel.getByRole('button', { name: 'Set', exact: true }).click();
  job.tell('cost 0.8');
  await expect(panel.getByRole('button', { name: 'overhead 0.8 % ± 0.1' })).toBeVisible();
  await expect(panel.getByText('Every second step is traced instead of every step.')).toBeVisible();
  job.tell('silence 5');
  await expect(
    panel.getByText(/^Rank 5 \(tp 1, pp 1.*\) on node-2 has been silent for \d\.\d s, since step/)
  ).toBeVisible();
  await panel.getByRole('button', { name: 'Show every rank' }).click();
  await expect(panel.locator('.jp-MegalensRanks-cell.jp-mod-silent')).toContainText('5');
  await narrow(panel);
  await shots(page, 'panel-job', panel);
  job.tell('speak 5');
  await expect(panel.getByText(/has been silent/)).toHaveCount(0);
  await job.process.end();
});

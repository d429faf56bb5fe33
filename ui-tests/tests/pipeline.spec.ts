import type { Locator, Page } from '@playwright/test';
import { expect, ready, runCell, shots, showPanel, test, writeNotebook } from '../lab';

const drawn = (within: Locator | Page): Locator => within.locator('.jp-MegalensPlot canvas').first();

test('a pipeline of real processes is drawn with what it measures, is planned anew, and runs what is applied', async ({
  open,
  lab
}) => {
  test.setTimeout(180_000);
  writeNotebook(lab, 'pipeline.ipynb', [
    'import megalens\nrun = megalens.connect("gpt-stages")\nrun.pipeline_plan(kind="plan")',
    'plan = megalens.pipeline.plan(run, "gpipe")\nprint(plan, run.pipeline(plan) > 0)',
    'print(megalens.split.plan(run))\nrun.split_plan()'
  ]);
  const [training, page] = await Promise.all([
    lab.train('gpt-stages', { pipeline: true }),
    open('pipeline.ipynb')
  ]);
  const panel = await showPanel(page);
  await expect(panel.getByRole('option', { name: /gpt-stages/ })).toHaveAttribute('aria-selected', 'true');
  await ready(page);
  await runCell(page, 0);
  const cell = page.locator('.jp-OutputArea-output .jp-MegalensCellView').first();
  await expect(drawn(cell)).toBeVisible({ timeout: 60_000 });
  // Its own times, once steps are recorded.
  await expect(cell).toContainText(/Times are the medians of \d+ measured steps/, { timeout: 60_000 });
  await runCell(page, 1);
  await expect(page.locator('.jp-OutputArea-output').last()).toContainText(
    /PipelinePlan gpipe: 2 stages, 1 chunks, 8 micro-batches.*True/,
    { timeout: 60_000 }
  );
  await runCell(page, 2);
  const split = page.locator('.jp-OutputArea-output .jp-MegalensCellView').last();
  await expect(split).toContainText(/Do not split: the best split takes/, { timeout: 60_000 });
  await expect(split).toContainText(/Roles of \d+ processes/);
  await panel.getByRole('button', { name: 'Pipeline', exact: true }).click();
  const tab = page.locator('.jp-MegalensViewTab:visible');
  await expect(drawn(tab)).toBeVisible({ timeout: 60_000 });
  const text = tab.locator('.jp-MegalensView').first();
  // Beside the notebook there is no room for all of them.
  const more = tab.getByRole('button', { name: /more ▾/ }).first();
  await more.click();
  await tab.locator('[data-control="schedule"] select').selectOption('measured');
  await expect(text).toContainText('GPipe as measured: 2 stages, 8 micro-batches', { timeout: 60_000 });
  await shots(page, 'lab-pipeline');
  await tab.getByRole('button', { name: 'Apply at the next step' }).click();
  await expect(text).toContainText(/runs from step [\d\u2009]+ on\./, { timeout: 30_000 });
  await expect(text).not.toContainText('GPipe as measured', { timeout: 60_000 });
  await training.process.end();
});

import { mkdirSync, writeFileSync } from 'fs';
import { join } from 'path';
import type { Locator, Page } from '@playwright/test';
import { expect, ready, runCell, shots, showPanel, test, writeNotebook } from '../lab';

/** Four ranks and twelve steps in Chrome's format, of which rank 2 takes half as long again for its passes, as another tool might write it. */
function traceEvents(): object[] {
  const events: object[] = [];
  for (let step = 0; step < 12; step += 1) {
    for (let rank = 0; rank < 4; rank += 1) {
      const zero = 100_000 * step + 37 * rank;
      const pace = (rank === 2 ? 1.5 : 1) * (1 + 0.004 * Math.sin(7 * step + 3 * rank));
      const [forward, backward] = [20_000 * pace, 55_000 * pace];
      const span = (name: string, ts: number, end: number, args = {}): object => ({
        ...{ ph: 'X', name, pid: rank, tid: 0, ts, dur: end - ts },
        args: { step: step + 1, ...args }
      });
      const free = 100_000 * step + 83_000;
      events.push(
        span('train step', zero, 100_000 * step + 95_000),
        span('forward', zero, zero + forward),
        span('backward', zero + forward, zero + backward),
        span('all_reduce', zero + backward, free + 11 * rank, { group: [0, 1, 2, 3], bytes: 4096 }),
        span('optimizer', free + 11 * rank, free + 10_000)
      );
    }
  }
  return events;
}

const drawn = (within: Locator | Page): Locator => within.locator('.jp-MegalensPlot canvas').first();

test('a training whose phases are timed is drawn while it goes on, from the panel and in a cell', async ({
  open,
  lab
}) => {
  test.setTimeout(120_000);
  writeNotebook(lab, 'timeline.ipynb', [
    'import megalens\nrun = megalens.connect("gpt-timeline")\nrun.timeline()',
    'from megalens.instruments.timeline import analyse\nprint(analyse(run).verdict())'
  ]);
  const [training, page] = await Promise.all([
    lab.train('gpt-timeline', { timeline: true }),
    open('timeline.ipynb')
  ]);
  const panel = await showPanel(page);
  await expect(panel.getByRole('option', { name: /gpt-timeline/ })).toHaveAttribute('aria-selected', 'true');
  await ready(page);
  await runCell(page, 0);
  const cell = page.locator('.jp-OutputArea-output .jp-MegalensCellView').first();
  await expect(drawn(cell)).toBeVisible({ timeout: 30_000 });
  await runCell(page, 1);
  await expect(page.locator('.jp-OutputArea-output').last()).toContainText(/Steps \d+ to \d+, .* ms each/);
  await panel.getByRole('button', { name: 'Timeline', exact: true }).click();
  const tab = page.locator('.jp-MegalensViewTab:visible');
  await expect(drawn(tab)).toBeVisible({ timeout: 30_000 });
  const text = tab.locator('.jp-MegalensView').first();
  await expect(text).toContainText(/1 ranks?, steps \d+ to \d+, .* each/);
  const before = await text.textContent();
  // It follows the training.
  await expect.poll(() => text.textContent(), { timeout: 30_000 }).not.toBe(before);
  await training.process.end();
});

test('a trace of another tool is opened by the panel, and the rank that makes the others wait is named and shown', async ({
  open,
  lab
}) => {
  test.setTimeout(120_000);
  const folder = join(lab.folder, 'traces');
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'job.json'), JSON.stringify({ traceEvents: traceEvents() }));
  const page = await open();
  const panel = await showPanel(page);
  await panel.getByRole('button', { name: '+ Open files…' }).click();
  const dialog = page.locator('.jp-Dialog');
  await dialog.locator('input').fill('traces');
  await dialog.getByRole('button', { name: 'Open', exact: true }).click();
  await expect(panel.getByRole('option', { name: /traces/ })).toHaveAttribute('aria-selected', 'true');
  await expect(panel).toContainText('trace: Chrome’s trace format');
  await panel.getByRole('button', { name: 'Timeline', exact: true }).click();
  const tab = page.locator('.jp-MegalensViewTab:visible');
  await expect(drawn(tab)).toBeVisible({ timeout: 30_000 });
  await expect(tab.locator('.jp-MegalensView-title').first()).toHaveText('One thing costs time');
  await expect(tab).toContainText(/rank 2 computes 42\.\d % .* slower than its like/);
  await tab.getByRole('button', { name: 'Critical path' }).click();
  await shots(page, 'lab-timeline');
  await tab.getByLabel('Find').fill('reduce');
  await tab.getByLabel('Find').press('Enter');
  await expect(tab).toContainText('48 spans have “reduce” in their name.');
  await tab.getByRole('button', { name: 'Next', exact: true }).click();
  await expect(tab).toContainText('1 of 48: rank');
  await tab.getByLabel('Draw').selectOption({ label: 'rank × step' });
  await expect(tab.getByLabel('Find')).toHaveCount(0);
  await expect(drawn(tab)).toBeVisible();
  await shots(page, 'lab-timeline-map');
});

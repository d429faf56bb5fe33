import { execFileSync } from 'child_process';
import { join, resolve } from 'path';
import type { Locator } from '@playwright/test';
import { expect, ready, runCell, shots, showPanel, test, writeNotebook } from '../lab';

test.describe.configure({ mode: 'serial' });

const ROOT = resolve(__dirname, '../..');

test.beforeAll(({ lab }) => {
  execFileSync(join(ROOT, '.venv/bin/python'), [join(ROOT, 'ui-tests/explored.py'), lab.folder], {
    env: { ...process.env, PYTHONPATH: ROOT }
  });
});

test('the panel opens the explorer, which names a spike of one step and what is not finite', async ({
  open
}) => {
  const page = await open();
  const panel = await showPanel(page);
  await panel.getByRole('option', { name: /explored/ }).click();
  await expect(
    panel.getByText(/parameters, gradients, activations, residual stream every step/)
  ).toBeVisible();
  // What draws, Vega too, is loaded while the panel is looked at.
  const loaded = (): Promise<boolean> =>
    page.evaluate(() =>
      (performance.getEntriesByType('resource') as PerformanceResourceTiming[]).some(
        ({ decodedBodySize, name }) =>
          name.includes('/extensions/megalens/static/') && decodedBodySize > 400_000
      )
    );
  await expect.poll(loaded).toBe(true);
  await panel.getByRole('button', { name: 'Statistics', exact: true }).click();
  const tab = page.locator('.jp-MegalensViewTab:visible');
  await expect(tab.locator('.jp-MegalensPlot canvas').first()).toBeVisible({ timeout: 30_000 });
  await expect(tab).toContainText(
    'First non-finite gradients: step 30, decoder.layers.1.mlp.linear_fc1.weight (2)'
  );
  await shots(page, 'lab-moments-overview');
  await choose(tab, 'Draw', 'lines');
  await expect(tab.locator('.jp-MegalensView-title:visible').first()).toContainText('Gradient L2');
  // What the picture shows in words: the spike is drawn, and not thinned away.
  await expect(stage(tab)).toHaveAttribute('aria-label', /rose .* between step 24 and 25 in layer 2/);
  // A tab is as tall as the work area, and the picture fills it.
  const height = async (): Promise<number> =>
    (await tab.locator('.jp-MegalensPlot canvas').first().boundingBox())?.height ?? 0;
  await expect.poll(height).toBeGreaterThan(500);
  await shots(page, 'lab-moments-lines');
  await choose(tab, 'Of', 'residual streams');
  await choose(tab, 'Statistic', 'kurtosis');
  await expect(tab.locator('.jp-MegalensView-title:visible').first()).toContainText(
    'Residual stream kurtosis'
  );
  await choose(tab, 'By', 'total');
  await expect(stage(tab)).toHaveAttribute('aria-label', /all tensors|total/i);
  await choose(tab, 'Draw', 'map of layers');
  await expect(tab.locator('.jp-MegalensView-title:visible').first()).toContainText(/layer/i);
  await shots(page, 'lab-moments-map');
});

test('run.statistics draws in a cell, and its rows are a table', async ({ open, lab }) => {
  writeNotebook(lab, 'explore.ipynb', [
    'import megalens\nrun = megalens.open("megalens-runs/20261120-101500-explored")\nview = run.statistics(stat="kurtosis", by="layer")\nview',
    'frame = view.df\nprint("rows", len(frame), "at", frame.loc[frame["l2"].idxmax(), "step"], "of", view.statistic)'
  ]);
  const page = await open('explore.ipynb');
  await ready(page);
  await runCell(page, 0);
  const view = page.locator('.jp-OutputArea-output .jp-MegalensCellView').first();
  await expect(view.locator('.jp-MegalensPlot canvas').first()).toBeVisible({ timeout: 30_000 });
  await expect(view.locator('.jp-MegalensView-title:visible').first()).toContainText('Gradient kurtosis');
  await shots(page, 'lab-moments-cell');
  await choose(view, 'Statistic', 'RMS');
  await runCell(page, 1);
  await expect(page.locator('.jp-OutputArea-output', { hasText: 'rows' })).toContainText(
    'rows 200 at 25 of rms'
  );
});

test('files of another logger are opened by the panel, and shown in a cell wherever the notebook lies', async ({
  open,
  lab
}) => {
  writeNotebook(lab, 'other/files.ipynb', [
    'import megalens\nfiles = megalens.open("my-run")\nfiles.statistics("grad", "l2", by="layer")'
  ]);
  const page = await open('other/files.ipynb');
  await ready(page);
  await runCell(page, 0);
  const cell = page.locator('.jp-OutputArea-output .jp-MegalensCellView').first();
  await expect(cell.locator('.jp-MegalensPlot canvas').first()).toBeVisible({ timeout: 30_000 });
  await expect(cell.locator('.jp-MegalensView-title:visible').first()).toContainText('Gradient L2');
  const panel = await showPanel(page);
  await panel.getByRole('button', { name: '+ Open files…' }).click();
  const dialog = page.locator('.jp-Dialog');
  await dialog.locator('input').fill('nowhere');
  await dialog.getByRole('button', { name: 'Open', exact: true }).click();
  await expect(dialog).toContainText('There is nothing at nowhere.');
  await dialog.getByRole('button').last().click();
  await panel.getByRole('button', { name: '+ Open files…' }).click();
  await dialog.locator('input').fill('other');
  await dialog.getByRole('button', { name: 'Open', exact: true }).click();
  const entry = panel.getByRole('option', { name: /my-run/ });
  await expect(entry).toHaveAttribute('aria-selected', 'true');
  await expect(entry).toContainText('statistics');
  await panel.getByRole('button', { name: 'Statistics', exact: true }).click();
  const tab = page.locator('.jp-MegalensViewTab:visible');
  await expect(tab.locator('.jp-MegalensPlot canvas').first()).toBeVisible({ timeout: 30_000 });
  await shots(page, 'lab-moments-files');
});

test('a training that goes on is followed in every kind, names what turns NaN, and is kept when it ends', async ({
  open,
  lab
}) => {
  test.setTimeout(180_000);
  const [training, page] = await Promise.all([lab.train('gpt-live', { statistics: true, rate: 4 }), open()]);
  try {
    const panel = await showPanel(page);
    await panel.getByRole('option', { name: /gpt-live/ }).click();
    await expect(panel.getByText(/gradients, residual stream every step/)).toBeVisible();
    await panel.getByRole('button', { name: 'Statistics', exact: true }).click();
    const tab = page.locator('.jp-MegalensViewTab:visible');
    const title = tab.locator('.jp-MegalensView-title:visible').first();
    await expect(tab.locator('.jp-MegalensPlot canvas').first()).toBeVisible({ timeout: 30_000 });
    await follows(title, 'Gradient L2 of all tensors');
    await choose(tab, 'Draw', 'lines');
    await follows(title, 'Gradient L2 by layer');
    // The cursor at the end of a line is at its newest step, which a later one moves on.
    const ends = async (): Promise<number> => {
      await stage(tab).press('End');
      return lastNumber(
        (await tab.locator('[aria-live]:visible').first().textContent()) ?? '',
        /step ([\d\u202f]+),/
      );
    };
    const end = await ends();
    await expect.poll(ends).toBeGreaterThan(end);
    await choose(tab, 'Draw', 'layers at a step');
    await follows(title, 'Gradient L2 by layer');
    await choose(tab, 'Draw', 'map of layers');
    await follows(title, 'Gradient L2 by layer');
    const note = tab.locator('.jp-MegalensNote:visible').first();
    await expect(note).toHaveCount(0);
    const before = await newest(title);
    training.tell('sick');
    await expect(note).toContainText(
      /First non-finite gradients: step [\d\u202f]+, blocks\.1\.mlp\.fc1\.weight \(1\)/
    );
    const bad = lastNumber((await note.textContent()) ?? '', /step ([\d\u202f]+),/);
    expect(bad).toBeGreaterThan(before);
    await expect(tab).toContainText('Cells in which values are not finite are hatched.');
    await shots(page, 'lab-moments-live-map');
    await note.getByRole('button', { name: 'Go there' }).click();
    await expect(title).toContainText('Gradient L2 by tensor');
    await expect(tab).toContainText(/Values that are not finite at [\d\u202f]+ steps?, marked along the top/);
    // That is fifty steps on either side, and by now more may have come: all of them are followed again.
    await tab.getByRole('button', { name: /^More \(/ }).click();
    await tab.getByRole('button', { name: /^steps / }).click();
    await follows(title, 'Gradient L2 by tensor');
    await shots(page, 'lab-moments-live-bad');
    // The panel names the same, and leads there.
    const named = panel.getByRole('button', { name: /non-finite in statistics/ });
    await expect(named).toContainText(`first at step ${bad}, blocks.1.mlp.fc1.weight`);
    training.tell('end');
    const banner = tab.locator('.jp-MegalensBanner:visible');
    await expect(banner).toContainText(/Training finished at step \d/);
    const last = lastNumber((await banner.textContent()) ?? '', /step ([\d\u202f]+)/);
    await expect.poll(() => newest(title)).toBe(last);
    // All that came stays, in every kind.
    await choose(tab, 'Draw', 'map of layers');
    await expect(title).toContainText('Gradient L2 by layer');
    expect(await newest(title)).toBe(last);
    await expect(banner).toContainText(`Training finished at step ${last}.`);
    await shots(page, 'lab-moments-live-ended');
  } finally {
    await training.process.end();
  }
});

/** The picture goes on by itself: its title names a later step. */
async function follows(title: Locator, words: string): Promise<void> {
  await expect(title).toContainText(words);
  const step = await newest(title);
  await expect.poll(() => newest(title)).toBeGreaterThan(step + 1);
}

/** The last step that a title names. */
const newest = async (title: Locator): Promise<number> =>
  lastNumber((await title.textContent()) ?? '', /([\d\u202f]+)$/);

const lastNumber = (text: string, pattern: RegExp): number =>
  Number((pattern.exec(text)?.[1] ?? '').replace(/\u202f/g, ''));

/** The picture's stage: its label says in words what the picture shows. */
const stage = (view: Locator): Locator => view.locator('.jp-MegalensStage:visible').first();

async function choose(view: Locator, label: string, text: string): Promise<void> {
  const list = view.getByRole('combobox', { name: label, exact: true }).first();
  // Where the line has no room for it, it is folded.
  const more = view.getByRole('button', { name: /more ▾/ }).first();
  await expect(list.or(more).first()).toBeVisible();
  if (!(await list.isVisible())) {
    await more.click();
  }
  await list.selectOption({ label: text });
}

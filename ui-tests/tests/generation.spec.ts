import { execFileSync } from 'child_process';
import { cpSync, readFileSync, writeFileSync } from 'fs';
import { join, resolve } from 'path';
import { violations } from '../axe.cjs';
import { expect, ready, runFromPalette, test } from '../lab';
import { picture } from '../picture';

const ROOT = resolve(__dirname, '../..');
/** Pictures of docs/generation.md, by the cell of the notebook that draws each. */
const PICTURES = {
  generate: 'tokens',
  heatmap: 'vectors',
  attention: 'attention',
  heads: 'heads',
  lens: 'lens',
  projection: 'projection',
  perturb: 'compared',
  effects: 'effects',
  sweep: 'sweep'
};

test('the notebook about generation draws every view, and a click on a token moves the others there', async ({
  open,
  lab
}) => {
  test.setTimeout(300_000);
  const notebook = JSON.parse(readFileSync(join(ROOT, 'examples/generation.ipynb'), 'utf-8')) as {
    cells: { id: string }[];
  };
  // tests/demo/test_generation_notebook.py runs all of them; here those are looked at that draw.
  notebook.cells = notebook.cells.filter(({ id }) =>
    ['model', 'serve', ...Object.keys(PICTURES)].includes(id)
  );
  writeFileSync(join(lab.folder, 'generation.ipynb'), JSON.stringify(notebook));
  writeModel(join(lab.folder, 'generation-model'));
  const page = await open('generation.ipynb');
  // As tall as the tallest view.
  await page.setViewportSize({ width: 1360, height: 1300 });
  await ready(page);
  await runFromPalette(page, 'Run All Cells');
  const prompts = page.locator('.jp-Notebook .jp-CodeCell .jp-InputPrompt');
  await expect(prompts.last()).toHaveText(/\[\d+\]:/, { timeout: 120_000 });
  const outputOf = (id: string) =>
    page
      .locator('.jp-Notebook .jp-Cell')
      .nth(notebook.cells.findIndex(cell => cell.id === id))
      .locator('.jp-OutputArea-output')
      .last();
  for (const [cell, name] of Object.entries(PICTURES)) {
    const output = outputOf(cell);
    await output.scrollIntoViewIfNeeded();
    await expect(output.locator('.jp-MegalensPlot canvas').first()).toBeVisible({ timeout: 30_000 });
    await picture(output, `docs-generation-${name}`);
  }
  expect(await violations(page, ['.jp-OutputArea-output .jp-MegalensView'])).toEqual([]);
  const tokens = outputOf('generate');
  const title = tokens.getByText(/^Candidates at position \d+$/);
  // A token of the prompt, whose first line is as long in every text.
  await tokens
    .locator('.jp-MegalensPlot canvas')
    .first()
    .click({ position: { x: 90, y: 12 } });
  await expect(title).not.toHaveText('Candidates at position 56');
  const position = /\d+$/.exec((await title.textContent()) ?? '')![0];
  await expect(outputOf('lens')).toContainText(`after position ${position},`);
});

/** Write the model of the notebook into a folder: that of `MEGALENS_MODEL`, for pictures that show words, or one that was not trained. */
function writeModel(folder: string): void {
  if (process.env.MEGALENS_MODEL) {
    cpSync(process.env.MEGALENS_MODEL, folder, { recursive: true });
    return;
  }
  const code =
    'import sys; from megalens.demo.model import save_checkpoint; from megalens.demo.model import GPT; save_checkpoint(GPT(), sys.argv[1])';
  execFileSync(join(ROOT, '.venv/bin/python'), ['-c', code, folder], { cwd: ROOT });
}

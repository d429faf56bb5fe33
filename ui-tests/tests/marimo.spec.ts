import { writeFileSync } from 'fs';
import { join } from 'path';
import type { Locator, Page } from '@playwright/test';
import { CONTEXT, expect, test, type ITraining } from '../lab';
import { freePort, type ILab } from '../lab-server';
import { picture } from '../picture';
import { until } from '../processes';

test.describe.configure({ mode: 'serial' });

let training: ITraining;
let url: string;

/** A notebook of marimo: each cell's code, and the names that it takes from and gives to others. */
function notebookOf(cells: [code: string, takes: string, gives: string][]): string {
  const written = cells.map(
    ([code, takes, gives]) =>
      `@app.cell\ndef _(${takes}):\n${code.replace(/^/gm, '    ')}\n    return (${gives})\n`
  );
  return `import marimo\napp = marimo.App()\n\n${written.join('\n')}\nif __name__ == "__main__":\n    app.run()\n`;
}

async function serve(lab: ILab): Promise<string> {
  const file = join(lab.folder, 'views.py');
  writeFileSync(
    file,
    notebookOf([
      [
        'import marimo as mo\nimport megalens\nrun = megalens.connect("gpt-marimo")',
        '',
        'mo, megalens, run,'
      ],
      ['view = mo.ui.anywidget(run.heatmap("HiddenStates", layers="1"))\nview', 'mo, run', 'view,'],
      ["mo.md(f\"layers are {view.value['options']['layers']} and {view.layers}\")", 'mo, view', ''],
      ['button = mo.ui.run_button(label="Layers 2 and 3")\nbutton', 'mo', 'button,'],
      ['if button.value:\n    view.widget.layers = "2-3"', 'button, view', '']
    ])
  );
  const port = await freePort();
  await lab.start(['-m', 'marimo', 'run', file, '--headless', `--port=${port}`, '--host=127.0.0.1']);
  const found = `http://127.0.0.1:${port}/`;
  const answers = (): Promise<boolean> =>
    fetch(found).then(
      ({ ok }) => ok,
      () => false
    );
  await until('marimo', answers, 75);
  return found;
}

test.beforeAll(async ({ lab }) => {
  training = await lab.train('gpt-marimo', { traced: true });
  url = await serve(lab);
});

test.afterAll(async () => {
  await training.process.end();
});

/** A page of marimo's with its view drawn. */
async function opened(page: Page): Promise<Locator> {
  await page.goto(url);
  const view = page.locator('.jp-MegalensView');
  await expect(view.locator('.jp-MegalensPlot canvas').first()).toBeVisible({ timeout: 60_000 });
  return view;
}

test('a view is live in marimo, and its options go both ways', async ({ page }) => {
  const view = await opened(page);
  const layers = view.getByRole('combobox', { name: 'Layers' });
  await view.getByRole('button', { name: /more/ }).click();
  await expect(layers).toHaveValue('1');
  const caption = view.locator('.jp-MegalensView-caption').first();
  const before = await caption.innerText();
  await expect.poll(() => caption.innerText()).not.toBe(before);
  await layers.fill('3');
  await layers.press('Enter');
  await expect(page.getByText('layers are 3 and 3')).toBeVisible();
  await page.getByRole('button', { name: 'Layers 2 and 3' }).click();
  await expect(view.locator('.jp-MegalensView-title').first()).toContainText('layers 2 and 3');
  await picture(page, 'marimo-light');
});

test('a view in marimo follows its theme', async ({ page }) => {
  const view = await opened(page);
  const holder = page.locator('.jp-MegalensAlone');
  await expect(holder).toHaveAttribute('data-theme', 'light');
  await page.evaluate(() => {
    document.documentElement.classList.add('dark');
    document.body.classList.add('dark', 'dark-theme');
  });
  await expect(holder).toHaveAttribute('data-theme', 'dark');
  await expect(view.locator('.jp-MegalensView-title').first()).toHaveCSS('color', 'rgb(230, 232, 234)');
  await picture(page, 'marimo-dark');
});

test('a view in marimo is Chinese where the browser asks for that', async ({ browser }) => {
  const context = await browser.newContext({ ...CONTEXT, locale: 'zh-CN' });
  try {
    const page = await context.newPage();
    const view = await opened(page);
    await expect(view.locator('.jp-MegalensView-title').first()).toContainText(/第 \d+ 层/);
    await expect(view).not.toContainText(/\b(the|of|and|is|step|layer)\b/i);
    await picture(page, 'marimo-chinese');
  } finally {
    await context.close();
  }
});

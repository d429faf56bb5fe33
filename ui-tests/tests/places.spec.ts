import type { Page } from '@playwright/test';
import { expect, runFromPalette, test, writeNotebook, type ITraining } from '../lab';
import { freePort } from '../lab-server';
import { picture, SHOWN } from '../picture';
import { until } from '../processes';

let training: ITraining;

test.beforeAll(async ({ lab }) => {
  training = await lab.train('gpt-places', { traced: true });
});

test.afterAll(async () => {
  await training.process.end();
});

/** Note what a page says of errors, its policy's too; `of` are those that count. */
function faults(page: Page, of = /./): string[] {
  const said: string[] = [];
  page.on('console', message => {
    if (message.type() === 'error' && of.test(`${message.text()} ${message.location().url}`)) {
      said.push(message.text());
    }
  });
  page.on('pageerror', error => of.test(error.stack ?? '') && said.push(String(error)));
  return said;
}

const plot = (page: Page) => page.locator('.jp-MegalensPlot canvas').first();
/** What the address says behind its `#`. */
const kept = (page: Page) => JSON.parse(decodeURIComponent(new URL(page.url()).hash.slice(1)));

test('a page of the server has the panel and live views, which a reload keeps', async ({ page, lab }) => {
  const said = faults(page);
  await page.goto(`${lab.url}megalens/`);
  await expect(page.getByText('Choose a run at the left, and one of its views.')).toBeVisible();
  await page.getByRole('option', { name: 'gpt-places' }).click();
  await page.locator('[data-view="heatmap"]').click();
  await expect(plot(page)).toBeVisible();
  const title = page.locator('.jp-MegalensView-title').first();
  const before = await title.innerText();
  await expect.poll(() => title.innerText()).not.toBe(before);
  await page.getByRole('button', { name: /more/ }).click();
  await page.getByRole('combobox', { name: 'Colours' }).selectOption('log');
  await expect.poll(() => kept(page).views?.[0]?.options.transform).toBe('log');
  await expect(page).toHaveTitle(/^Heatmap · .* of run gpt-places – Megalens$/);
  await page.reload();
  await expect(plot(page)).toBeVisible();
  expect(kept(page).views[0].options.transform).toBe('log');
  await expect(page.locator('.jp-MegalensView-caption').first()).toContainText('logarithmic');
  await expect(page.getByRole('option', { name: 'gpt-places' })).toHaveAttribute('aria-selected', 'true');
  await page.getByRole('button', { name: 'All runs as a table' }).click();
  await expect(page.getByRole('tab', { name: 'Training runs' })).toBeVisible();
  await page.getByRole('button', { name: 'Panel' }).click();
  await expect(page.locator('#megalens-panel')).toBeHidden();
  expect(said).toEqual([]);
});

test('an address names one view, and says so where there is none', async ({ page, lab }) => {
  const said = faults(page);
  await page.goto(`${lab.url}megalens/view/${training.id}/scalars`);
  await expect(plot(page)).toBeVisible();
  await expect(page.locator('#megalens-panel')).toBeHidden();
  for (const tone of SHOWN) {
    await page.getByLabel('Theme').selectOption(tone);
    await expect(page.locator('html')).toHaveAttribute('data-theme', tone);
    await picture(page, `page-${tone}`);
  }
  expect(said).toEqual([]);
  await page.goto(`${lab.url}megalens/view/${training.id}/no-view`);
  await expect(page.getByRole('status').filter({ hasText: 'There is no view no-view.' })).toBeVisible();
  await expect(page.locator('#megalens-panel')).toBeVisible();
  await page.goto(`${lab.url}megalens/view/no-run/heatmap`);
  await expect(page.getByText('This server has no run no-run (any more).')).toBeVisible();
  await page.goto(`${lab.url}megalens/#{`);
  await expect(page.getByText('What the address says behind # cannot be read.')).toBeVisible();
});

test('the theme that was chosen stays', async ({ page, lab }) => {
  await page.goto(`${lab.url}megalens/`);
  await page.getByLabel('Theme').selectOption('dark');
  await page.reload();
  await expect(page.locator('html')).toHaveAttribute('data-theme', 'dark');
  await expect(page.locator('body')).toHaveAttribute('data-jp-theme-light', 'false');
  await page.getByLabel('Theme').selectOption('system');
  await expect(page.locator('html')).toHaveAttribute('data-theme', 'light');
});

test('who logs in by a token has it removed from the address', async ({ browser, lab }) => {
  const page = await (await browser.newContext()).newPage();
  await page.goto(`${lab.url}megalens/?token=${lab.token}`);
  await expect(page.locator('#megalens-panel')).toBeVisible();
  expect(page.url()).not.toContain(lab.token);
  await page.context().close();
});

test('in Notebook 7 the panel’s views open in pages of their own', async ({ page, context, lab }) => {
  const said = faults(page, /megalens/i);
  writeNotebook(lab, 'seven.ipynb', ['1']);
  await page.goto(`${lab.url}notebooks/seven.ipynb`);
  await expect(page.locator('.jp-Notebook .jp-Cell').first()).toBeVisible({ timeout: 45_000 });
  await runFromPalette(page, 'Show Training Runs');
  const panel = page.locator('#megalens-panel');
  await panel.getByRole('option', { name: 'gpt-places' }).click();
  const opening = context.waitForEvent('page');
  await panel.locator('[data-view="heatmap"]').click();
  const opened = await opening;
  await expect(plot(opened)).toBeVisible();
  expect(new URL(opened.url()).pathname).toContain(`/megalens/view/${training.id}/heatmap`);
  await opened.close();
  await picture(page, 'notebook-7');
  await page.evaluate(() => Object.assign(window, { open: () => null }));
  await panel.locator('[data-view="scalars"]').click();
  await expect(page.getByText('The browser did not let a page open.')).toBeVisible();
  await expect(page.getByRole('button', { name: 'Open the page' })).toBeVisible();
  expect(said).toEqual([]);
});

test('Voila shows the picture of a view where its server has no Megalens', async ({ browser, lab }) => {
  writeNotebook(lab, 'voila.ipynb', [
    'import megalens\nmegalens.connect("gpt-places").heatmap("HiddenStates", layers="1")'
  ]);
  const port = await freePort();
  const arguments_ = ['--no-browser', `--port=${port}`, '--Voila.ip=127.0.0.1'];
  await lab.start(['-m', 'voila', `${lab.folder}/voila.ipynb`, ...arguments_]);
  const address = `http://127.0.0.1:${port}/`;
  const answers = () =>
    fetch(`${address}voila/static/voila.js`).then(
      () => true,
      () => false
    );
  await until('Voila', answers, 75);
  const page = await (await browser.newContext()).newPage();
  const said = faults(page, /megalens/i);
  await page.goto(address, { timeout: 60_000 });
  await expect(page.locator('.jp-MegalensOutput svg').first()).toBeVisible({ timeout: 60_000 });
  await expect(page.getByText(/^Hidden states, .*layer 1/)).toBeVisible();
  await picture(page, 'voila');
  expect(said).toEqual([]);
  await page.context().close();
});

import { existsSync, readdirSync, readFileSync } from 'fs';
import { join } from 'path';
import { expect, load, showPanel, test } from '../lab';
import { picture } from '../picture';

/** Whether the recording of a run says what its model can trace. */
function described(folder: string, name: string): boolean {
  const runs = join(folder, 'megalens-runs');
  return readdirSync(runs)
    .map(each => join(runs, each, 'run.json'))
    .filter(existsSync)
    .map(file => JSON.parse(readFileSync(file, 'utf8')) as { run: { name: string }; flags?: unknown[] })
    .some(({ run, flags }) => run.name === name && (flags?.length ?? 0) > 0);
}

test('with no run the panel shows the two lines, and copies them', async ({ open, lab }) => {
  const page = await open();
  // Only the answer is cut down: another test's recorded runs may lie in the folder.
  await page.route(`${lab.url}megalens/api/runs*`, route => route.fulfill({ json: { runs: [] } }));
  const panel = await showPanel(page);
  await expect(panel.getByText('No run yet.')).toBeVisible();
  await expect(panel.getByText('python -m megalens.demo')).toBeVisible();
  await picture(panel, 'panel-no-run');
  await panel.getByRole('button', { name: 'Copy the two lines' }).click();
  await expect
    .poll(() => page.evaluate(() => navigator.clipboard.readText()))
    .toContain('tracer = megalens.trace(model)');
  await page.unrouteAll({ behavior: 'wait' });
});

test('a run out of login says so', async ({ open, lab }) => {
  const page = await open();
  await page.route(`${lab.url}megalens/api/runs*`, route =>
    route.fulfill({ status: 403, json: { code: 'forbidden', message: 'Log in first.' } })
  );
  const panel = await showPanel(page);
  await expect(panel.getByRole('alert')).toContainText('may not see runs');
  await expect(panel.getByRole('button', { name: 'Reload the page to log in' })).toBeVisible();
  await page.unrouteAll({ behavior: 'wait' });
});

test('a training process that is stopped is told, and goes on', async ({ open, lab }) => {
  const [training, page] = await Promise.all([lab.train('gpt-paused', { traced: true }), open()]);
  try {
    const panel = await showPanel(page);
    const run = panel.getByRole('option', { name: 'gpt-paused' });
    await expect(run).toContainText('live');
    await run.click();
    training.process.kill('SIGSTOP');
    await expect(panel.getByText(/The training process has been silent for/)).toBeVisible();
    await expect(run).toContainText('stale');
    training.process.kill('SIGCONT');
    await expect(run).toContainText('live');
    await expect(panel.getByText(/The training process has been silent for/)).toHaveCount(0);
  } finally {
    training.process.kill('SIGCONT');
    await training.process.end();
  }
});

test('when the hub is killed the panel says so and offers the recording', async ({ open, lab }) => {
  const [training, page] = await Promise.all([lab.train('gpt-killed', { traced: true }), open()]);
  const panel = await showPanel(page);
  const run = panel.getByRole('option', { name: 'gpt-killed' }).first();
  await run.click();
  await expect(panel.getByText('loss')).toBeVisible();
  // What the run traces is written to its description within half a second.
  await expect.poll(() => described(lab.folder, 'gpt-killed')).toBe(true);
  await training.process.end('SIGKILL');
  process.kill(training.hub, 'SIGKILL');
  await expect(panel.getByText('The hub of this run is gone after step')).toBeVisible({ timeout: 30_000 });
  await picture(panel, 'panel-hub-gone');
  await panel.getByRole('button', { name: 'Open the recording' }).click();
  await expect(panel.getByText('What this run traced.')).toBeVisible();
  await expect(panel.getByText('loss')).toBeVisible();
  await panel.getByRole('button', { name: 'Heatmap', exact: true }).click();
  await expect(page.locator('.jp-MegalensViewTab:visible .jp-MegalensPlot canvas').first()).toBeVisible();
});

test('finished training is told, and its recording opened', async ({ open, lab }) => {
  const [training, page] = await Promise.all([lab.train('gpt-finished', { traced: true }), open()]);
  const panel = await showPanel(page);
  await panel.getByRole('option', { name: 'gpt-finished' }).click();
  await expect(panel.getByText('loss')).toBeVisible();
  await training.process.end('SIGINT');
  await expect(panel.getByText(/Training (finished|process ended)/)).toBeVisible({ timeout: 30_000 });
});

// Every page of the session goes offline, and JupyterLab says so in a dialog over it: nobody uses the shared one after this.
test('an unreachable server is told, and the list comes back by itself', async ({ page, context, lab }) => {
  const [training] = await Promise.all([lab.train('gpt-offline'), load(page, lab)]);
  try {
    const panel = await showPanel(page);
    await expect(panel.getByRole('option', { name: 'gpt-offline' })).toBeVisible();
    await context.setOffline(true);
    await expect(panel.getByText('The Jupyter server does not answer')).toBeVisible();
    await expect(panel.getByRole('option', { name: 'gpt-offline' })).toBeVisible();
    await context.setOffline(false);
    // JupyterLab's own dialog may lie over the button by now, and the list may have come back without it.
    await panel.evaluate(node =>
      [...node.querySelectorAll('button')].find(each => each.textContent === 'Try again now')?.click()
    );
    await expect(panel.getByText('The Jupyter server does not answer')).toHaveCount(0);
  } finally {
    await training.process.end();
  }
});

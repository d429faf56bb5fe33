// The page's side of the benchmark of drawing: open views of a live run side by side and take the renderer's processor time and memory.
// Arguments come as JSON in BENCH_PAGE; the login token in BENCH_TOKEN.
import { readFile, writeFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { browserSession, openLab, pageSession, prepared, withChromium } from './lab-page.mjs';

const { url, run, flag, seconds, settle, watchHeap, stepsBefore, profile, screenshot } = JSON.parse(
  process.env.BENCH_PAGE
);
const VIEWS = [
  ['megalens:open-heatmap', { flag, layers: 'all' }],
  ['megalens:open-trend', { flag }],
  ['megalens:open-statistics', { stat: 'grad' }]
];

await withChromium(async endpoint => {
  await prepared(endpoint, prepare);
  const page = await pageSession(endpoint, url);
  const browser = await browserSession(endpoint);
  const evaluate = async expression => {
    const { result, exceptionDetails } = await page.send('Runtime.evaluate', {
      expression,
      awaitPromise: true
    });
    if (exceptionDetails) {
      throw new Error(`${expression}: ${exceptionDetails.exception?.description ?? exceptionDetails.text}`);
    }
    return result.value;
  };
  const found = {};
  while ((await evaluate('benchStep()')) < stepsBefore) {
    await sleep(1000);
  }
  for (const [name, change] of [
    ['heatmap, trend and statistics', ''],
    ['heatmap and trend', 'benchViews.pop().dispose()'],
    ['both behind another tab', 'benchHide()'],
    // What of all this is JupyterLab's own.
    ['JupyterLab alone', 'benchViews.forEach(view => view.dispose())'],
    [
      'the Overview',
      `window.jupyterapp.commands.execute('megalens:open-overview', { run: ${JSON.stringify(run)} })`
    ]
  ]) {
    await evaluate(change || '0');
    if (watchHeap) {
      found.heaps = await watched(page, settle);
      break;
    }
    // No collection is forced here: after one V8 keeps its heap small and collects many times as often.
    await sleep(1000 * (change === '' ? settle : Math.min(settle, 30)));
    if (profile) {
      await page.send('Profiler.enable');
      await page.send('Profiler.start');
    }
    found[name] = await measured(browser, evaluate);
    if (profile) {
      const { profile: taken } = await page.send('Profiler.stop');
      await writeFile(`${profile}.${Object.keys(found).length}.cpuprofile`, JSON.stringify(taken));
      await page.send('Profiler.disable');
    }
    if (screenshot && change === '') {
      await writeFile(screenshot, (await page.send('Page.captureScreenshot')).data, 'base64');
    }
  }
  page.close();
  browser.close();
  process.stdout.write(JSON.stringify(found));
});

/** Per cent of a core that the page's process takes, its resident MiB, and drawings of each view a second. */
async function measured(browser, evaluate) {
  await evaluate('benchDrawn.fill(0)');
  const [before, began] = [await renderer(browser), performance.now()];
  await sleep(1000 * seconds);
  const [after, took] = [await renderer(browser), (performance.now() - began) / 1000];
  const status = await readFile(`/proc/${after.id}/status`, 'utf8');
  return {
    share: (100 * (after.cpuTime - before.cpuTime)) / took,
    resident: Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1024,
    drawn: JSON.parse(await evaluate('JSON.stringify(benchDrawn)')).map(count => count / took)
  };
}

/** Let seconds pass; returns what the page's JavaScript holds after each minute of them, and at the end. */
async function watched(page, rest) {
  const heaps = [];
  for (let left = rest; left > 0; left -= 60) {
    await sleep(1000 * Math.min(left, 60));
    heaps.push(await heap(page));
  }
  return heaps;
}

/** MiB that the page's JavaScript holds after a collection. */
async function heap(page) {
  await page.send('HeapProfiler.collectGarbage');
  return (await page.send('Runtime.getHeapUsage')).usedSize / 2 ** 20;
}

/** The process of the page: of the renderers the one that has computed most. */
async function renderer(browser) {
  const { processInfo } = await browser.send('SystemInfo.getProcessInfo');
  return processInfo.filter(({ type }) => type === 'renderer').sort((a, b) => b.cpuTime - a.cpuTime)[0];
}

/** Open JupyterLab with the views beside one another. */
async function prepare(page) {
  await openLab(page, url);
  for (const [command, options] of VIEWS) {
    await page.waitForFunction(id => window.jupyterapp.commands.hasCommand(id), command, {
      timeout: 300_000
    });
    await page.evaluate(
      ([id, args]) => void window.jupyterapp.commands.execute(id, args),
      [command, { run, ...options }]
    );
    await page.waitForTimeout(1000);
  }
  const views = page.locator('.jp-MegalensView');
  await views.nth(VIEWS.length - 1).waitFor({ state: 'attached', timeout: 300_000 });
  await page.evaluate(() => {
    const { shell } = window.jupyterapp;
    const tabs = [...shell.widgets('main')].filter(tab => tab.node.querySelector('.jp-MegalensView'));
    tabs.slice(1).forEach((tab, at) => shell.add(tab, 'main', { mode: 'split-right', ref: tabs[at].id }));
    shell.collapseLeft?.();
    window.benchViews = tabs;
    window.benchStep = () =>
      Number(tabs[0].node.querySelector('.jp-MegalensSteps-text').textContent.replace(/\D/g, ''));
    window.benchHide = async () => {
      const other = await window.jupyterapp.commands.execute('launcher:create');
      tabs.forEach(tab => !tab.isDisposed && shell.add(tab, 'main', { mode: 'tab-after', ref: other.id }));
      shell.activateById(other.id);
    };
  });
  // What lies behind another tab is not drawn.
  const drawn = page.locator('.jp-MegalensView[data-state="drawn"]');
  await drawn.nth(VIEWS.length - 1).waitFor({ timeout: 300_000 });
  await page.evaluate(() => {
    const tabs = window.benchViews;
    window.benchDrawn = tabs.map(() => 0);
    // Title or caption names the newest step, and so changes with every drawing.
    tabs.forEach((tab, at) =>
      new MutationObserver(() => (window.benchDrawn[at] += 1)).observe(
        tab.node.querySelector('.jp-MegalensView-title'),
        {
          childList: true,
          characterData: true,
          subtree: true
        }
      )
    );
  });
}

// The page's side of the browser benchmark: log in, open one heatmap per flag side by side, and note when each step is on the screen.
// Arguments come as JSON in BENCH_PAGE; the login token in BENCH_TOKEN, so that it is in no address and no process list.
import { writeFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { pageSession, prepared, withChromium } from './bare-page.mjs';
import { openLab } from './lab-page.mjs';

const { url, run, flags, seconds, warmUp, screenshot } = JSON.parse(process.env.BENCH_PAGE);
// A forced collection holds the page up, so it is asked for at the ends and in the middle only.
const COLLECT_EVERY = 300;
const LOOK_EVERY = 60;

await withChromium(async endpoint => {
  await prepared(endpoint, prepare);
  process.stdout.write(JSON.stringify(await watch(endpoint)));
});

/** Open JupyterLab with the views, then let go of the page. */
async function prepare(page) {
  await openLab(page, url);
  for (const flag of flags) {
    await page.evaluate(
      ([id, name]) =>
        void window.jupyterapp.commands.execute('megalens:open-heatmap', {
          run: id,
          flag: name,
          layers: 'all'
        }),
      [run, flag]
    );
  }
  const texts = page.locator('.jp-MegalensSteps-text');
  await texts.nth(flags.length - 1).waitFor({ state: 'attached', timeout: 90_000 });
  // Tabs lie behind each other: the benchmark wants all of them drawn.
  await page.evaluate(() => {
    const { shell } = window.jupyterapp;
    const views = [...shell.widgets('main')].filter(widget =>
      widget.node.querySelector('.jp-MegalensSteps-text')
    );
    views.slice(1).forEach((view, at) => shell.add(view, 'main', { mode: 'split-right', ref: views[at].id }));
    shell.collapseLeft?.();
  });
  await page.waitForFunction(
    count =>
      [...document.querySelectorAll('.jp-MegalensSteps-text')].filter(
        node => node.offsetParent && /\d/.test(node.textContent)
      ).length === count,
    flags.length,
    { timeout: 90_000 }
  );
  await page.evaluate(() => {
    // The toolbar's step follows the finished drawing. One frame later the drawing is on the screen.
    window.benchDrawn = [];
    document.querySelectorAll('.jp-MegalensSteps-text').forEach((node, view) => {
      new MutationObserver(() => {
        const step = Number(node.textContent.replace(/\D/g, ''));
        requestAnimationFrame(() => window.benchDrawn.push([view, step, Date.now()]));
      }).observe(node, { childList: true, characterData: true, subtree: true });
    });
  });
}

/** Watch the page through a bare debugging session with no domain enabled: it costs the page nothing between the questions. */
async function watch(endpoint) {
  const session = await pageSession(endpoint, url);
  const evaluate = async expression =>
    (await session.send('Runtime.evaluate', { expression, returnByValue: true })).result.value;
  const heaps = [];
  const look = async (at, collected) => {
    if (collected) {
      await session.send('HeapProfiler.collectGarbage');
    }
    const { usedSize, backingStorageSize = 0 } = await session.send('Runtime.getHeapUsage');
    heaps.push({ at: Math.round(at), collected, usedSize, backingStorageSize });
  };
  await sleep(warmUp * 1000);
  await look(0, true);
  // What waited during the collection is not what a user waits for.
  await sleep(2000);
  await evaluate('void window.benchDrawn.splice(0)');
  const began = Date.now();
  const elapsed = () => (Date.now() - began) / 1000;
  const drawn = [];
  for (let minute = 1; elapsed() < seconds; minute += 1) {
    const next = Math.min(minute * LOOK_EVERY, seconds);
    await sleep(Math.max(0, next - elapsed()) * 1000);
    drawn.push(...(await evaluate('window.benchDrawn.splice(0)')));
    await look(next, next === seconds || next % COLLECT_EVERY === 0);
  }
  const watched = elapsed();
  if (screenshot) {
    const { data } = await session.send('Page.captureScreenshot');
    await writeFile(screenshot, data, 'base64');
  }
  session.close();
  return { drawn, heaps, seconds: watched };
}

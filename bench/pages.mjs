// The pages that benchmarks look at; the first argument says which. Arguments come as JSON in BENCH_PAGE; the login token in BENCH_TOKEN, so that it is in no address and no process list.
import { chromium } from '@playwright/test';
import { writeFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { LAUNCH, openLab, openedAfter, pageSession, prepared, withChromium, withLab } from './lab-page.mjs';

const { url, run, screenshot, ...given } = JSON.parse(process.env.BENCH_PAGE);

/** Attention: open the view by its command, wait for colours on the canvas; and again in the same page. */
async function attention() {
  /** Until a view has taken in its tokens, ms. */
  const SETTLED = 5000;
  /** The view, and the lower left of its plot, where queries look back. */
  const OPENED = ['megalens:open-attention', { run }, [0.08, 0.4, 0.2, 0.3]];
  await withLab(url, async page => {
    await hasCommand(page, OPENED[0]);
    const opened = await page.evaluate(openedAfter, OPENED);
    const bytes = await page.evaluate(askedFor);
    // The tokens come after the first picture.
    await page.waitForFunction(() =>
      performance.getEntriesByType('resource').some(({ name }) => name.includes('/streams/tokens'))
    );
    const later = (await page.evaluate(askedFor)).tokens - (bytes.tokens ?? 0);
    await page.waitForTimeout(SETTLED);
    if (screenshot) {
      await page.screenshot({ path: screenshot });
    }
    await page.evaluate(() => window.jupyterapp.commands.execute('application:close'));
    const again = await page.evaluate(openedAfter, OPENED);
    return { opened, again, bytes, later };
  });
}

/** Bytes of each stream that the page asked the server for. */
function askedFor() {
  const bytes = {};
  for (const { name, decodedBodySize } of performance.getEntriesByType('resource')) {
    const stream = /\/streams\/(\w+)/.exec(name)?.[1];
    if (stream !== undefined) {
      bytes[stream] = (bytes[stream] ?? 0) + decodedBodySize;
    }
  }
  return bytes;
}

/** Explorer and timeline: open the view by its command, wait for something on the canvas, zoom, and drag while frames are timed. */
async function explorer() {
  const { command, view, twice, panel } = given;
  /** The view, and the middle of its plot. */
  const OPENED = [command, { run, ...view }, [0.3, 0.15, 0.4, 0.6]];
  await withLab(url, async page => {
    await hasCommand(page, 'megalens:open-panel');
    if (panel) {
      await lookedAtPanel(page);
    }
    const opened = await page.evaluate(openedAfter, OPENED);
    const seen = twice ? await openedAgain(page, OPENED) : await panned(page);
    if (screenshot) {
      await page.screenshot({ path: screenshot });
    }
    return { opened, ...seen };
  });
}

/** Show the panel, and look at its run for as long as it takes to find a button. */
async function lookedAtPanel(page) {
  await page.evaluate(() => window.jupyterapp.commands.execute('megalens:open-panel'));
  await page.locator('.jp-MegalensPanel [role=option][aria-selected=true]').first().waitFor();
  await page.waitForTimeout(3000);
}

/** Zoom, then drag the picture while frames are timed. */
async function panned(page) {
  const plot = page.locator('.jp-MegalensViewTab:visible .jp-MegalensPlot').first();
  const { x, y, width, height } = await plot.boundingBox();
  const [left, top] = [x + width / 2, y + height / 2];
  for (let zoom = 0; zoom < 3; zoom += 1) {
    await page.mouse.move(left, top);
    await page.keyboard.down('Control');
    await page.mouse.wheel(0, -300);
    await page.keyboard.up('Control');
    await page.waitForTimeout(1500);
  }
  const before = await picture();
  await page.evaluate(startFrames);
  await page.mouse.move(left, top);
  await page.mouse.down();
  for (let move = 1; move <= 120; move += 1) {
    await page.mouse.move(left + 3 * move, top);
  }
  await page.mouse.up();
  const frames = await page.evaluate(() => window.benchFrames.splice(0));
  await page.waitForTimeout(1000);
  if (before === (await picture())) {
    throw new Error('Expected the picture to move under the mouse; it stayed as it was.');
  }
  // The first is the time until the mouse began.
  return { frames: frames.slice(1) };

  async function picture() {
    return (await plot.screenshot()).toString('base64');
  }
}

/** Close the picture when what follows it has been read, and open it once more. */
async function openedAgain(page, OPENED) {
  await page.waitForTimeout(10_000);
  await page.evaluate(() => window.jupyterapp.commands.execute('application:close'));
  return { again: await page.evaluate(openedAfter, OPENED) };
}

/** Note the time of every animation frame from now on. */
function startFrames() {
  window.benchFrames = [];
  let last = performance.now();
  const next = now => {
    window.benchFrames.push(now - last);
    last = now;
    requestAnimationFrame(next);
  };
  requestAnimationFrame(next);
}

/** Browser: open one heatmap per flag side by side, and note when each step is on the screen. */
async function browser() {
  await withChromium(async endpoint => {
    await prepared(endpoint, heatmaps);
    process.stdout.write(JSON.stringify(await watch(endpoint)));
  });
}

/** Open JupyterLab with the views, then let go of the page. */
async function heatmaps(page) {
  const { flags } = given;
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
  const { seconds, warmUp } = given;
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
    const next = Math.min(60 * minute, seconds);
    await sleep(Math.max(0, next - elapsed()) * 1000);
    drawn.push(...(await evaluate('window.benchDrawn.splice(0)')));
    // A forced collection holds the page up, so it is asked for at the ends and in the middle only.
    await look(next, next === seconds || next % 300 === 0);
  }
  const watched = elapsed();
  if (screenshot) {
    const { data } = await session.send('Page.captureScreenshot');
    await writeFile(screenshot, data, 'base64');
  }
  session.close();
  return { drawn, heaps, seconds: watched };
}

/** JupyterLab's start: several openings, each in a browser context of its own. */
async function start() {
  const browser = await chromium.launch(LAUNCH);
  const seconds = [];
  for (let round = 0; round < given.rounds; round++) {
    const context = await browser.newContext();
    const page = await context.newPage();
    await openLab(page, url);
    // Logged in now; what is timed is the page alone, with nothing of it in the cache of this context's memory but its files.
    const began = performance.now();
    await page.goto(`${url}lab?reset`);
    await page.waitForFunction(() => window.jupyterapp !== undefined, null, { timeout: 90_000 });
    await page.evaluate(() => window.jupyterapp.restored);
    seconds.push((performance.now() - began) / 1000);
    await context.close();
  }
  await browser.close();
  console.log(JSON.stringify({ seconds }));
}

/** Tokens: open the view and note when each text has how many letters. */
async function tokens() {
  const COMMAND = 'megalens:open-tokens';
  await withLab(url, async page => {
    await hasCommand(page, COMMAND);
    await page.evaluate(
      ([id, options]) => void window.jupyterapp.commands.execute(id, options),
      [COMMAND, { run }]
    );
    const shown = await page.evaluate(watched, [given.texts, given.tokens, given.prompt]);
    return { shown };
  });
}

/** Of each text that is written: at which times (ms since the epoch) it had how many new letters on the screen. */
async function watched([count, most, before]) {
  const frame = () => new Promise(resolve => requestAnimationFrame(resolve));
  const found = [];
  let last = '';
  const ends = performance.now() + 1000 * (50 + 9 * count);
  while (found.length < count || last.length < most) {
    if (performance.now() > ends) {
      throw new Error(`Only ${found.length} of ${count} texts came.`);
    }
    await frame();
    const label =
      [...document.querySelectorAll('.jp-MegalensViewTab [aria-label*="Text: "]')].at(-1)?.ariaLabel ?? '';
    const text = label.slice(label.lastIndexOf('Text: ') + 6 + before);
    if (!label || text === last) {
      continue;
    }
    // A text may be drawn for the first time when it is as long as the one before.
    if (!text.startsWith(last) || found.length === 0) {
      found.push([]);
    }
    last = text;
    await frame();
    found.at(-1).push([performance.timeOrigin + performance.now(), text.length]);
  }
  return found;
}

/** marimo beside JupyterLab: from a command there, and from a button's click here, to the first picture of the same view, in turn, each in a page of its own. */
async function marimo() {
  const { notebook, flag, rounds } = given;
  const browser = await chromium.launch(LAUNCH);
  try {
    const seen = { lab: [], marimo: [] };
    for (let round = 0; round <= rounds; round += 1) {
      const times = { lab: await inLab(browser, flag), marimo: await inMarimo(browser, notebook) };
      // The first round fills caches of both servers.
      for (const [where, ms] of Object.entries(times)) {
        seen[where].push(...(round === 0 ? [] : [ms]));
      }
    }
    process.stdout.write(JSON.stringify(seen));
  } finally {
    await browser.close();
  }
}

async function inLab(browser, flag) {
  const context = await browser.newContext({ viewport: { width: 1600, height: 1000 } });
  const page = await context.newPage();
  await openLab(page, url);
  await hasCommand(page, 'megalens:open-heatmap');
  await page.waitForTimeout(3000);
  const ms = await page.evaluate(openedAfter, ['megalens:open-heatmap', { run, flag }, [0.2, 0.2, 0.6, 0.6]]);
  await context.close();
  return ms;
}

async function inMarimo(browser, address) {
  const context = await browser.newContext({ viewport: { width: 1600, height: 1000 } });
  const page = await context.newPage();
  await page.goto(address);
  const button = page.getByRole('button', { name: 'Show' });
  await button.waitFor({ timeout: 300_000 });
  await page.waitForTimeout(3000);
  const drawn = page.evaluate(pictured);
  await button.click();
  const ms = await drawn;
  await context.close();
  return ms;
}

/** Milliseconds from the next click to the frame after something coloured is drawn on a canvas, in whatever shadow it lies. */
async function pictured() {
  let began = NaN;
  addEventListener('click', () => (began = performance.now()), { capture: true, once: true });
  const canvases = root =>
    [...root.querySelectorAll('*')].flatMap(each => [
      ...(each.localName === 'canvas' ? [each] : []),
      ...(each.shadowRoot ? canvases(each.shadowRoot) : [])
    ]);
  const isDrawn = canvas => {
    if (canvas.width < 100) {
      return false;
    }
    const { width, height } = canvas;
    const area = [0.2 * width, 0.2 * height, 0.6 * width, 0.6 * height].map(Math.round);
    const { data } = canvas.getContext('2d').getImageData(...area);
    return data.some(
      (_, at) =>
        at % 4 === 0 &&
        Math.max(...data.slice(at, at + 3)) - Math.min(...data.slice(at, at + 3)) > 40 &&
        data[at + 3] > 100
    );
  };
  for (;;) {
    await new Promise(resolve => requestAnimationFrame(resolve));
    if (!Number.isNaN(began) && canvases(document).some(isDrawn)) {
      await new Promise(resolve => requestAnimationFrame(resolve));
      return performance.now() - began;
    }
    if (performance.now() - began > 120_000) {
      throw new Error(
        `Nothing was drawn within two minutes. The page says: ${document.body.innerText.slice(0, 400)}`
      );
    }
  }
}

async function hasCommand(page, command) {
  await page.waitForFunction(id => window.jupyterapp.commands.hasCommand(id), command);
}

await { attention, browser, explorer, marimo, start, tokens }[process.argv[2]]();

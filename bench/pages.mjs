// The pages that benchmarks look at; the first argument says which. Arguments come as JSON in BENCH_PAGE; the login token in BENCH_TOKEN, so that it is in no address and no process list.
import { chromium } from '@playwright/test';
import { spawn } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { WebSocket } from 'ws';

const { url, run, ...given } = JSON.parse(process.env.BENCH_PAGE);
/** For what hangs: how fast the machine is decides nothing. */
const LIMIT = { timeout: 300_000 };
const MIDDLE = [0.2, 0.2, 0.6, 0.6];
/** How long a page is left alone, ms: when a person reads that nothing is traced, all that was recorded before has come. */
const REST = 6000;
const LAUNCH = {
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu', '--disable-background-networking']
};

/** Attention: open the view by its command, wait for colours on the canvas; and again in the same page. */
async function attention(page) {
  /** The view, and the lower left of its plot, where queries look back. */
  const opened = () => openedAfter(page, 'megalens:open-attention', { run }, [0.08, 0.4, 0.2, 0.3]);
  const first = await opened();
  const bytes = await page.evaluate(askedFor);
  // The tokens come after the first picture.
  await page.waitForFunction(() =>
    performance.getEntriesByType('resource').some(({ name }) => name.includes('/streams/tokens'))
  );
  const later = (await page.evaluate(askedFor)).tokens - (bytes.tokens ?? 0);
  await page.waitForTimeout(REST);
  await close(page);
  return { opened: first, again: await opened(), bytes, later };
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

/** Explorer and timeline: open the view by its command, wait for something on the canvas, then zoom and drag while frames are timed, or open it twice. */
async function explorer(page) {
  const { command, view, twice, panel } = given;
  if (panel) {
    // Its run is looked at for as long as it takes to find a button.
    await execute(page, 'megalens:open-panel');
    await page.locator('.jp-MegalensPanel [role=option][aria-selected=true]').first().waitFor();
    await page.waitForTimeout(3000);
  }
  const open = () => openedAfter(page, command, { run, ...view }, [0.3, 0.15, 0.4, 0.6]);
  const opened = await open();
  if (!twice) {
    return { opened, frames: await panned(page) };
  }
  // What follows the picture is read meanwhile.
  await page.waitForTimeout(10_000);
  await close(page);
  return { opened, again: await open() };
}

/** Zoom, then drag the picture while frames are timed, ms. */
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
  const before = (await plot.screenshot()).toString('base64');
  await page.evaluate(() => {
    window.benchFrames = [];
    let last = performance.now();
    const next = now => {
      window.benchFrames.push(now - last);
      last = now;
      requestAnimationFrame(next);
    };
    requestAnimationFrame(next);
  });
  await page.mouse.move(left, top);
  await page.mouse.down();
  for (let move = 1; move <= 120; move += 1) {
    await page.mouse.move(left + 3 * move, top);
  }
  await page.mouse.up();
  const frames = await page.evaluate(() => window.benchFrames.splice(0));
  await page.waitForTimeout(1000);
  if (before === (await plot.screenshot()).toString('base64')) {
    throw new Error('Expected the picture to move under the mouse; it stayed as it was.');
  }
  // The first is the time until the mouse began.
  return frames.slice(1);
}

/** Tokens: open the view and note of each text that is written at which times (ms since the epoch) it had how many new letters on the screen. */
async function tokens(page) {
  await execute(page, 'megalens:open-tokens', { run });
  const shown = await page.evaluate(
    async ([count, most, before]) => {
      const frame = () => new Promise(resolve => requestAnimationFrame(resolve));
      const found = [];
      let last = '';
      const ends = performance.now() + 1000 * (50 + 9 * count);
      while (found.length < count || last.length < most) {
        if (performance.now() > ends) {
          throw new Error(`Only ${found.length} of ${count} texts came.`);
        }
        await frame();
        const views = [...document.querySelectorAll('.jp-MegalensViewTab [aria-label*="Text: "]')];
        const label = views.at(-1)?.ariaLabel ?? '';
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
    },
    [given.texts, given.tokens, given.prompt]
  );
  return { shown };
}

/** How long a person waits for a live run: from the command to the Overview's first picture, and from the button that has a point traced to the first picture of it. */
async function first(page) {
  const { flag } = given;
  const session = await page.context().newCDPSession(page);
  await session.send('Performance.enable', { timeDomain: 'threadTicks' });
  /** Milliseconds that the page's main thread has computed: others that want the processor add nothing. */
  const computed = async () => {
    const { metrics } = await session.send('Performance.getMetrics');
    return 1000 * metrics.find(each => each.name === 'TaskDuration').value;
  };
  const timed = async (...what) => {
    const before = await computed();
    const took = await openedAfter(page, ...what, MIDDLE);
    return { took, thread: (await computed()) - before };
  };
  await hasCommand(page, 'megalens:open-overview');
  const overview = await timed('megalens:open-overview', { run });
  await close(page);
  await execute(page, 'megalens:open-heatmap', { run, flag, layers: 'all' });
  await page.waitForTimeout(REST);
  // A view of a point that a recording has draws that, and offers nothing.
  const trace = '.jp-MegalensState button';
  await page.locator(trace, { hasText: /^Trace / }).waitFor(LIMIT);
  return { overview, apply: await timed('click', trace) };
}

/** JupyterLab's start: several openings, each in a browser context of its own. */
async function start() {
  const seconds = await rounds(given.rounds, async page => {
    // Logged in now; what is timed is the page alone, with nothing of it in the cache of this context's memory but its files.
    const began = performance.now();
    await loaded(page);
    return (performance.now() - began) / 1000;
  });
  return { seconds };
}

/** marimo beside JupyterLab: from a command there, and from a button's click here, to the first picture of the same view, in turn, each in a page of its own. */
async function marimo() {
  const { notebook, flag } = given;
  const seen = await rounds(given.rounds + 1, async (page, context) => {
    await page.waitForTimeout(3000);
    const lab = await openedAfter(page, 'megalens:open-heatmap', { run, flag }, MIDDLE);
    await page.close();
    const other = await context.newPage();
    await other.goto(notebook);
    const button = other.getByRole('button', { name: 'Show' });
    await button.waitFor(LIMIT);
    await other.waitForTimeout(3000);
    const drawn = openedAfter(other, 'clicked', null, MIDDLE);
    await button.click();
    return [lab, await drawn];
  });
  // The first round fills caches of both servers.
  const [lab, theirs] = [0, 1].map(at => seen.slice(1).map(each => each[at]));
  return { lab, marimo: theirs };
}

/** What `use` gives for each of several pages with an empty JupyterLab, in contexts of their own. */
async function rounds(count, use) {
  const browser = await chromium.launch(LAUNCH);
  try {
    const found = [];
    for (let round = 0; round < count; round += 1) {
      const context = await browser.newContext({ viewport: { width: 1600, height: 1000 } });
      const page = await context.newPage();
      await openLab(page);
      found.push(await use(page, context));
      await context.close();
    }
    return found;
  } finally {
    await browser.close();
  }
}

/** Log in with the token in BENCH_TOKEN, and wait until an empty JupyterLab is there. */
async function openLab(page) {
  // The limits of Playwright, 30 s, are shorter than a start of JupyterLab beside a training on a busy machine.
  page.setDefaultTimeout(LIMIT.timeout);
  await page.goto(`${url}login`);
  await page.locator('#password_input').fill(process.env.BENCH_TOKEN);
  await page.locator('#login_submit').click();
  await page.waitForURL(address => !address.pathname.endsWith('/login'));
  await loaded(page);
}

async function loaded(page) {
  await page.goto(`${url}lab?reset`);
  await page.waitForFunction(() => window.jupyterapp !== undefined);
  await page.evaluate(() => window.jupyterapp.restored);
}

async function hasCommand(page, command) {
  await page.waitForFunction(id => window.jupyterapp.commands.hasCommand(id), command);
}

async function execute(page, command, options = {}) {
  await hasCommand(page, command);
  await page.evaluate(([id, args]) => void window.jupyterapp.commands.execute(id, args), [command, options]);
}

async function close(page) {
  await page.evaluate(() => window.jupyterapp.commands.execute('application:close'));
}

/**
 * Milliseconds from a command that opens a view, from a click on what a selector names ('click'), or from the next click ('clicked'), to the frame after something is drawn in an
 * area of a plot, given as parts of it: left, top, width and height.
 */
async function openedAfter(page, what, options, area) {
  if (what.includes(':')) {
    await hasCommand(page, what);
  }
  return page.evaluate(firstDrawing, [what, options, area]);
}

/** Run in the page. In a notebook of marimo a canvas may lie in any shadow. */
async function firstDrawing([what, options, [left, top, across, down]]) {
  let began = performance.now();
  if (what === 'clicked') {
    began = NaN;
    addEventListener('click', () => (began = performance.now()), { capture: true, once: true });
  } else if (what === 'click') {
    document.querySelector(options).click();
  } else {
    void window.jupyterapp.commands.execute(what, options);
  }
  const below = root =>
    [...root.querySelectorAll('*')].flatMap(each => [
      ...(each.localName === 'canvas' ? [each] : []),
      ...(each.shadowRoot ? below(each.shadowRoot) : [])
    ]);
  const canvases = () =>
    what === 'clicked'
      ? below(document)
      : [...document.querySelectorAll('.jp-MegalensViewTab .jp-MegalensPlot canvas')];
  const isDrawn = canvas => {
    if (!canvas.offsetParent || canvas.width < 100) {
      return false;
    }
    const { width, height } = canvas;
    const area = [left * width, top * height, across * width, down * height].map(Math.round);
    const { data } = canvas.getContext('2d').getImageData(...area);
    // Axes and grid are grey; what is drawn has a colour.
    return data.some(
      (_, at) =>
        at % 4 === 0 &&
        Math.max(data[at], data[at + 1], data[at + 2]) - Math.min(data[at], data[at + 1], data[at + 2]) >
          40 &&
        data[at + 3] > 100
    );
  };
  const frame = () => new Promise(resolve => requestAnimationFrame(resolve));
  for (const ends = performance.now() + 300_000; performance.now() < ends;) {
    await frame();
    if (!Number.isNaN(began) && canvases().some(isDrawn)) {
      await frame();
      return performance.now() - began;
    }
  }
  const said = (document.querySelector('.jp-MegalensViewTab') ?? document.body).textContent;
  throw new Error(`Nothing was drawn within five minutes. The page says: ${said.slice(0, 400)}`);
}

/** Browser: open one heatmap per flag side by side, and note when each step is on the screen. */
async function browser({ prepared, session }) {
  const { flags, seconds, warmUp } = given;
  await prepared(async page => {
    await openViews(
      page,
      flags.map(flag => ['megalens:open-heatmap', { flag, layers: 'all' }])
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
  });
  const { page, evaluate } = await session();
  const heaps = [];
  const look = async (at, collected) => {
    if (collected) {
      await page.send('HeapProfiler.collectGarbage');
    }
    const { usedSize, backingStorageSize = 0 } = await page.send('Runtime.getHeapUsage');
    heaps.push({ at: Math.round(at), collected, usedSize, backingStorageSize });
  };
  await sleep(warmUp * 1000);
  await look(0, true);
  // What waited during the collection is not what a user waits for.
  await sleep(2000);
  await evaluate('void benchDrawn.splice(0)');
  const began = Date.now();
  const elapsed = () => (Date.now() - began) / 1000;
  const drawn = [];
  for (let minute = 1; elapsed() < seconds; minute += 1) {
    const next = Math.min(60 * minute, seconds);
    await sleep(Math.max(0, next - elapsed()) * 1000);
    drawn.push(...JSON.parse(await evaluate('JSON.stringify(benchDrawn.splice(0))')));
    // A forced collection holds the page up, so it is asked for at the ends and in the middle only.
    await look(next, next === seconds || next % 300 === 0);
  }
  return { drawn, heaps, seconds: elapsed() };
}

/** Drawing: open views of a live run side by side and take the renderer's processor time and memory. */
async function rendering({ prepared, session, browserSession }) {
  const { flag, seconds, settle, watchHeap, stepsBefore } = given;
  await prepared(async page => {
    await openViews(page, [
      ['megalens:open-heatmap', { flag, layers: 'all' }],
      ['megalens:open-trend', { flag }],
      ['megalens:open-statistics', { stat: 'grad' }]
    ]);
    await page.evaluate(countDrawings);
  });
  const { page, evaluate } = await session();
  while ((await evaluate('benchStep()')) < stepsBefore) {
    await sleep(1000);
  }
  if (watchHeap) {
    // MiB that the page's JavaScript holds after a collection: each minute, and at the end.
    const heaps = [];
    for (let left = settle; left > 0; left -= 60) {
      await sleep(1000 * Math.min(left, 60));
      await page.send('HeapProfiler.collectGarbage');
      heaps.push((await page.send('Runtime.getHeapUsage')).usedSize / 2 ** 20);
    }
    return { heaps };
  }
  const browser = await browserSession();
  const found = {};
  for (const [name, change] of [
    ['heatmap, trend and statistics', '0'],
    ['heatmap and trend', 'benchViews.pop().dispose()'],
    ['both behind another tab', 'benchHide()'],
    // What of all this is JupyterLab's own.
    ['JupyterLab alone', 'benchViews.forEach(view => view.dispose())'],
    [
      'the Overview',
      `window.jupyterapp.commands.execute('megalens:open-overview', ${JSON.stringify({ run })})`
    ]
  ]) {
    await evaluate(change);
    // No collection is forced here: after one V8 keeps its heap small and collects many times as often.
    await sleep(1000 * (change === '0' ? settle : Math.min(settle, 30)));
    await evaluate('benchDrawn.fill(0)');
    const [before, began] = [await renderer(browser), performance.now()];
    await sleep(1000 * seconds);
    const [after, took] = [await renderer(browser), (performance.now() - began) / 1000];
    const status = await readFile(`/proc/${after.id}/status`, 'utf8');
    found[name] = {
      // Per cent of a core that the page's process takes, its MiB, and drawings of each view a second.
      share: (100 * (after.cpuTime - before.cpuTime)) / took,
      resident: Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1024,
      drawn: JSON.parse(await evaluate('JSON.stringify(benchDrawn)')).map(count => count / took)
    };
  }
  return found;
}

/** Run in the page: title or caption of a view names the newest step, and so changes with every drawing. */
function countDrawings() {
  const tabs = window.benchViews;
  window.benchStep = () =>
    Number(tabs[0].node.querySelector('.jp-MegalensSteps-text').textContent.replace(/\D/g, ''));
  window.benchHide = async () => {
    const { commands, shell } = window.jupyterapp;
    const other = await commands.execute('launcher:create');
    tabs.forEach(tab => !tab.isDisposed && shell.add(tab, 'main', { mode: 'tab-after', ref: other.id }));
    shell.activateById(other.id);
  };
  window.benchDrawn = tabs.map(() => 0);
  tabs.forEach((tab, at) =>
    new MutationObserver(() => (window.benchDrawn[at] += 1)).observe(
      tab.node.querySelector('.jp-MegalensView-title'),
      { childList: true, characterData: true, subtree: true }
    )
  );
}

/** The process of the page: of the renderers the one that has computed most. */
async function renderer(browser) {
  const { processInfo } = await browser.send('SystemInfo.getProcessInfo');
  return processInfo.filter(({ type }) => type === 'renderer').sort((a, b) => b.cpuTime - a.cpuTime)[0];
}

/** Open JupyterLab with views beside one another: what lies behind another tab is not drawn. */
async function openViews(page, views) {
  await openLab(page);
  for (const [command, options] of views) {
    await execute(page, command, { run, ...options });
    await page.waitForTimeout(1000);
  }
  await page
    .locator('.jp-MegalensView')
    .nth(views.length - 1)
    .waitFor({ state: 'attached', ...LIMIT });
  await page.evaluate(() => {
    const { shell } = window.jupyterapp;
    const tabs = [...shell.widgets('main')].filter(tab => tab.node.querySelector('.jp-MegalensView'));
    tabs.slice(1).forEach((tab, at) => shell.add(tab, 'main', { mode: 'split-right', ref: tabs[at].id }));
    shell.collapseLeft?.();
    window.benchViews = tabs;
  });
  await page
    .locator('.jp-MegalensView[data-state="drawn"]')
    .nth(views.length - 1)
    .waitFor(LIMIT);
}

/** Give what uses it a bare Chromium: no debugging domain is enabled in its pages, so that what watches them costs them nothing. */
async function inChromium(use) {
  const profile = await mkdtemp(join(tmpdir(), 'megalens-bench-'));
  const browser = spawn(
    LAUNCH.executablePath,
    [
      ...['--headless', '--no-first-run', '--disable-extensions', '--window-size=1600,1000', ...LAUNCH.args],
      ...['--disable-background-timer-throttling', '--disable-backgrounding-occluded-windows'],
      ...['--disable-renderer-backgrounding', '--remote-debugging-port=0', `--user-data-dir=${profile}`],
      'about:blank'
    ],
    { stdio: 'ignore' }
  );
  const gone = new Promise(resolve => browser.once('exit', resolve));
  const sessions = [];
  try {
    const endpoint = await debuggingAddress(profile);
    const asked = async path => (await fetch(`http://${endpoint}/json/${path}`)).json();
    const opened = async ({ webSocketDebuggerUrl }) => {
      sessions.push(await openSession(webSocketDebuggerUrl));
      return sessions.at(-1);
    };
    return await use({
      /** Prepare the page with Playwright, then let go of it: Playwright has the browser copy every WebSocket message to it as text. */
      prepared: async prepare => {
        const remote = await chromium.connectOverCDP(`http://${endpoint}`);
        const [context] = remote.contexts();
        await prepare(context.pages()[0] ?? (await context.newPage()));
        await remote.close();
      },
      browserSession: async () => opened(await asked('version')),
      session: async () => {
        const page = await opened(
          (await asked('list')).find(each => each.type === 'page' && each.url.startsWith(url))
        );
        return { page, evaluate: expression => evaluated(page, expression) };
      }
    });
  } finally {
    sessions.forEach(each => each.close());
    browser.kill();
    await gone;
    await rm(profile, { recursive: true, force: true, maxRetries: 5 });
  }
}

async function evaluated(page, expression) {
  const { result, exceptionDetails } = await page.send('Runtime.evaluate', {
    expression,
    awaitPromise: true
  });
  if (exceptionDetails) {
    throw new Error(`${expression}: ${exceptionDetails.exception?.description ?? exceptionDetails.text}`);
  }
  return result.value;
}

/** Where the browser listens, as it writes it down itself. */
async function debuggingAddress(profile) {
  for (const end = Date.now() + 30_000; Date.now() < end; await sleep(100)) {
    const text = await readFile(join(profile, 'DevToolsActivePort'), 'utf8').catch(() => '');
    if (text.includes('\n')) {
      return `127.0.0.1:${text.split('\n')[0]}`;
    }
  }
  throw new Error('Chromium did not start within 30 s.');
}

async function openSession(address) {
  const socket = new WebSocket(address, { maxPayload: 256 << 20 });
  await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject));
  const open = new Map();
  let last = 0;
  socket.on('message', data => {
    const { id, result, error } = JSON.parse(data);
    const [resolve, reject] = open.get(id) ?? [];
    open.delete(id);
    if (error !== undefined) {
      reject?.(new Error(error.message));
    } else {
      resolve?.(result);
    }
  });
  socket.on('close', () => open.forEach(([, reject]) => reject(new Error('Chromium ended.'))));
  return {
    close: () => socket.close(),
    send: (method, params = {}) =>
      new Promise((resolve, reject) => {
        last += 1;
        open.set(last, [resolve, reject]);
        socket.send(JSON.stringify({ id: last, method, params }));
      })
  };
}

const IN_LAB = { attention, explorer, first, tokens };
const WATCHED = { browser, rendering };
const part = process.argv[2];
const seen =
  part in IN_LAB
    ? (await rounds(1, IN_LAB[part]))[0]
    : part in WATCHED
      ? await inChromium(WATCHED[part])
      : await { marimo, start }[part]();
process.stdout.write(JSON.stringify(seen));

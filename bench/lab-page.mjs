// What every page of the benchmarks begins with, and a bare Chromium: no debugging domain is enabled in its pages, so that what watches them costs them nothing.
import { chromium } from '@playwright/test';
import { spawn } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { WebSocket } from 'ws';

export const LAUNCH = {
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu', '--disable-background-networking']
};

/** Await something; an error says what was waited for, and for how long. */
export async function waited(what, promise) {
  const began = Date.now();
  try {
    return await promise;
  } catch (cause) {
    throw new Error(`Waited ${Math.round((Date.now() - began) / 1000)} s for ${what}.`, { cause });
  }
}

/** Log in with the token in BENCH_TOKEN, which is so in no address and no process list, and wait until an empty JupyterLab is there. */
export async function openLab(page, url) {
  // The limits of Playwright, 30 s, are shorter than a start of JupyterLab beside a training on a busy machine.
  page.setDefaultTimeout(300_000);
  await waited('the page to log in', page.goto(`${url}login`));
  await page.locator('#password_input').fill(process.env.BENCH_TOKEN);
  await page.locator('#login_submit').click();
  await waited(
    'the login',
    page.waitForURL(address => !address.pathname.endsWith('/login'))
  );
  await waited('the page of JupyterLab', page.goto(`${url}lab?reset`));
  await waited(
    'JupyterLab itself',
    page.waitForFunction(() => window.jupyterapp !== undefined)
  );
  await waited(
    'the layout of JupyterLab',
    page.evaluate(() => window.jupyterapp.restored)
  );
}

/** Open an empty JupyterLab in a browser of its own, give what uses it the page, and print as JSON what comes of that. */
export async function withLab(url, use) {
  const browser = await chromium.launch(LAUNCH);
  try {
    const page = await browser.newPage({ viewport: { width: 1600, height: 1000 } });
    await openLab(page, url);
    process.stdout.write(JSON.stringify(await use(page)));
  } finally {
    await browser.close();
  }
}

/**
 * Run in the page: milliseconds from a command that opens a view to the frame after something is drawn in an area of its plot, given as parts of the plot: left, top, width and
 * height. Without a command, from a click on what a selector names.
 */
export async function openedAfter([command, options, [left, top, across, down]]) {
  const began = performance.now();
  if (command === null) {
    document.querySelector(options).click();
  } else {
    void window.jupyterapp.commands.execute(command, options);
  }
  const drawn = () =>
    [...document.querySelectorAll('.jp-MegalensViewTab .jp-MegalensPlot canvas')].some(canvas => {
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
    });
  const frame = () => new Promise(resolve => requestAnimationFrame(resolve));
  for (;;) {
    await frame();
    if (drawn()) {
      await frame();
      return performance.now() - began;
    }
    if (performance.now() - began > 300_000) {
      const said = document.querySelector('.jp-MegalensViewTab')?.textContent ?? 'no view';
      throw new Error(`Nothing was drawn within five minutes. The page says: ${said.slice(0, 400)}`);
    }
  }
}

/** Start a Chromium, give what uses it the address of its debugging port, and end it. */
export async function withChromium(use) {
  const profile = await mkdtemp(join(tmpdir(), 'megalens-bench-'));
  const browser = spawn(
    LAUNCH.executablePath,
    [
      ...['--headless', '--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu', '--no-first-run'],
      ...['--disable-background-timer-throttling', '--disable-backgrounding-occluded-windows'],
      ...['--disable-renderer-backgrounding', '--disable-background-networking', '--disable-extensions'],
      ...['--remote-debugging-port=0', `--user-data-dir=${profile}`, '--window-size=1600,1000', 'about:blank']
    ],
    { stdio: 'ignore' }
  );
  const gone = new Promise(resolve => browser.once('exit', resolve));
  try {
    return await use(await debuggingAddress(profile));
  } finally {
    browser.kill();
    await gone;
    await rm(profile, { recursive: true, force: true, maxRetries: 5 });
  }
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

/** Prepare the page with Playwright, then let go of it: Playwright has the browser copy every WebSocket message to it as text. */
export async function prepared(endpoint, prepare) {
  const remote = await chromium.connectOverCDP(`http://${endpoint}`);
  const [context] = remote.contexts();
  await prepare(context.pages()[0] ?? (await context.newPage()));
  await remote.close();
}

/** Open a debugging session of the page whose address begins so. */
export async function pageSession(endpoint, url) {
  const targets = await (await fetch(`http://${endpoint}/json/list`)).json();
  const target = targets.find(each => each.type === 'page' && each.url.startsWith(url));
  if (target === undefined) {
    throw new Error('The page with the views is not there any more.');
  }
  return openSession(target.webSocketDebuggerUrl);
}

/** Open a debugging session of the browser itself. */
export async function browserSession(endpoint) {
  const { webSocketDebuggerUrl } = await (await fetch(`http://${endpoint}/json/version`)).json();
  return openSession(webSocketDebuggerUrl);
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

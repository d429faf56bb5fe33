// A bare Chromium: no debugging domain is enabled in its pages, so that what watches them costs them nothing.
import { chromium } from '@playwright/test';
import { spawn } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { WebSocket } from 'ws';

/** Start a Chromium, give what uses it the address of its debugging port, and end it. */
export async function withChromium(use) {
  const profile = await mkdtemp(join(tmpdir(), 'megalens-bench-'));
  const browser = spawn(
    process.env.CHROMIUM ?? '/usr/bin/chromium',
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

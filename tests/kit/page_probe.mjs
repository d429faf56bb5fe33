// Opens a report in Chromium with the network cut off, uses it as a person does, and prints what it found as JSON.
// node page_probe.mjs REPORT.html [--dark] [--still] [--axe] [--rest] [--screenshot FILE] [--do '[["text", "h1"], …]']
import { chromium } from '@playwright/test';
import { pathToFileURL } from 'node:url';
import { violations } from '../../ui-tests/axe.cjs';

/** What a person does. Each but the last few names a figure by its place and a control by its label. */
const ACTIONS = {
  choose: async (page, place, label, option) =>
    (await shown(page, place, label)).selectOption({ label: option }),
  write: async (page, place, label, text) => {
    await (await shown(page, place, label)).fill(text);
    await control(page, place, label).press('Enter');
  },
  press: (page, place, label) =>
    page.locator(`#view-${place} .live`).getByRole('button', { name: label }).first().click(),
  hover: (page, place, x, y) =>
    tipAt(page, page.locator(`#view-${place} .jp-MegalensStage:visible`).first(), x, y),
  click: (page, selector) => page.locator(selector).first().click(),
  text: (page, selector) => page.locator(selector).first().innerText(),
  count: (page, selector) => page.locator(selector).count(),
  until: (page, selector, pattern) =>
    page
      .locator(selector)
      .filter({ hasText: new RegExp(pattern) })
      .first()
      .innerText({ timeout: 10000 }),
  light: page => page.emulateMedia({ colorScheme: 'light' }),
  dark: page => page.emulateMedia({ colorScheme: 'dark' }),
  color: (page, selector) =>
    page
      .locator(selector)
      .first()
      .evaluate(node => getComputedStyle(node).fill || getComputedStyle(node).color)
};

const [file, ...flags] = process.argv.slice(2);
const has = name => flags.includes(name);
const after = name => (has(name) ? flags[flags.indexOf(name) + 1] : undefined);
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu']
});
const found = { requests: [], messages: [], violations: [] };
const url = pathToFileURL(file).href;
try {
  const page = await opened({ colorScheme: has('--dark') ? 'dark' : 'light' });
  await page.waitForSelector('html[data-live]', { timeout: 30000 });
  if (has('--rest')) {
    found.live = Number(await page.locator('html').getAttribute('data-live'));
    found.asked = await atRest(page);
  } else {
    Object.assign(found, await use(page));
  }
  if (has('--axe')) {
    found.violations = await violations(page);
    await page.emulateMedia({ colorScheme: 'dark' });
    await page.waitForSelector('body[data-jp-theme-light=false]');
    found.violations.push(
      ...(await violations(page, [], ['color-contrast'])),
      ...(await withoutScripts(page))
    );
    await page.emulateMedia({ colorScheme: 'light' });
    found.violations.push(...(await violations(page)));
  }
  if (after('--screenshot')) {
    await page.screenshot({ path: after('--screenshot'), fullPage: true });
  }
  if (has('--still')) {
    found.still = await stillOf(await opened({ javaScriptEnabled: false }));
  }
} finally {
  await browser.close();
}
console.log(JSON.stringify(found));

/** The page in a browser without a network, which notes what it asks for and says. */
async function opened(options) {
  const context = await browser.newContext({
    viewport: { width: 1100, height: 900 },
    offline: true,
    ...options
  });
  const page = await context.newPage();
  await page.addInitScript(count);
  page.on('request', request => {
    if (request.url() !== url && !/^(data|blob):/.test(request.url())) {
      found.requests.push(request.url());
    }
  });
  page.on('console', message => found.messages.push(`${message.type()}: ${message.text()}`));
  page.on('pageerror', error => found.messages.push(`error: ${error.message}`));
  await page.goto(url, { waitUntil: 'load' });
  return page;
}

/** Count how often the page asks to be called back. */
function count() {
  globalThis.asked = 0;
  for (const name of ['requestAnimationFrame', 'setTimeout', 'setInterval', 'queueMicrotask']) {
    const before = globalThis[name].bind(globalThis);
    globalThis[name] = (...given) => {
      globalThis.asked += 1;
      return before(...given);
    };
  }
}

/** How often the page asks to be called back in 60 frames in which nobody does anything, once it did not for ten. */
async function atRest(page) {
  const during = frames =>
    page.evaluate(async frames => {
      const before = globalThis.asked;
      for (let left = frames; left > 0; left -= 1) {
        await new Promise(requestAnimationFrame);
      }
      // The frames themselves were asked for.
      return globalThis.asked - before - frames;
    }, frames);
  await until(async () => (await during(10)) === 0);
  return during(60);
}

/** What is read and seen where no script runs. */
async function stillOf(page) {
  return {
    text: await page.evaluate(() => document.body.innerText),
    svgs: await page.locator('figure svg:visible').count()
  };
}

/** What axe finds where the page's script does not run and the pictures stand; with scripts off it could not look itself. */
async function withoutScripts(page) {
  await page.addStyleTag({ content: '.live { display: none } .still[hidden] { display: block }' });
  await page.locator('details').evaluateAll(all => all.forEach(each => (each.open = true)));
  return violations(page);
}

/** Hover over every chart, move the first slider to its start, and zoom its heatmap; then do what is asked for. */
async function use(page) {
  const live = Number(await page.locator('html').getAttribute('data-live'));
  const tips = [];
  for (const stage of await page.locator('.jp-MegalensStage:visible').all()) {
    tips.push(await tipAt(page, stage, 0.3, 0.4));
  }
  const result = { live, tips };
  const figure = page.locator('figure:has(.jp-MegalensSlider):has(.jp-MegalensStage image)').first();
  if ((await figure.count()) > 0) {
    Object.assign(result, await scrub(page, figure));
  }
  result.did = [];
  for (const [action, ...wish] of JSON.parse(after('--do') ?? '[]')) {
    result.did.push((await ACTIONS[action](page, ...wish)) ?? null);
  }
  return result;
}

/** The control by a label, unfolded where its toolbar has no room for it. */
async function shown(page, place, label) {
  const found = control(page, place, label);
  if (!(await found.isVisible())) {
    await page
      .locator(`#view-${place}`)
      .getByRole('button', { name: /more ▾/ })
      .first()
      .click();
  }
  return found;
}

function control(page, place, label) {
  const named = `#view-${place} .jp-MegalensControl:has(> span:text-is("${label}"))`;
  return page.locator(`${named} select, ${named} input`).first();
}

async function tipAt(page, stage, x, y) {
  await stage.scrollIntoViewIfNeeded();
  const box = await stage.boundingBox();
  await page.mouse.move(box.x + box.width * x, box.y + box.height * y);
  await page.mouse.move(box.x + box.width * x + 2, box.y + box.height * y);
  return (await stage.locator('.jp-MegalensTooltip').first().innerText()).trim();
}

async function scrub(page, figure) {
  const result = {};
  const title = figure.locator('.jp-MegalensView-title').last();
  const image = figure.locator('.jp-MegalensStage image').last();
  const pixels = () => image.evaluate(each => each.getAttribute('href') ?? each.getAttribute('xlink:href'));
  const slider = figure.locator('.jp-MegalensSlider');
  const before = await pixels();
  result.title = await title.innerText();
  await slider.focus();
  await page.keyboard.press('Home');
  await until(async () => (await title.innerText()) !== result.title && (await pixels()) !== before);
  result.movedTitle = await title.innerText();
  result.steps = Number(await slider.getAttribute('max')) + 1;
  await page.keyboard.press('End');
  await until(async () => (await title.innerText()) !== result.movedTitle);
  const ticks = async () =>
    (await figure.locator('.jp-MegalensStage .role-axis-label').allTextContents()).join();
  const wide = await ticks();
  const stage = figure.locator('.jp-MegalensStage').last();
  await stage.focus();
  const box = await stage.boundingBox();
  await page.mouse.move(box.x + box.width * 0.3, box.y + box.height * 0.4);
  await page.mouse.wheel(0, -400);
  await until(async () => (await ticks()) !== wide);
  result.zoomed = true;
  await stage.dblclick({ position: { x: 200, y: 100 } });
  await page.mouse.move(5, 5);
  return result;
}

/** Look again with each frame until something holds. */
async function until(holds) {
  const end = Date.now() + 10000;
  while (!(await holds())) {
    if (Date.now() > end) {
      throw new Error(`This never held: ${holds}`);
    }
  }
}

// Opens a report in Chromium with the network cut off, uses it as a person does, and prints what it found as JSON.
// node page_probe.mjs REPORT.html [--dark] [--no-script] [--screenshot FILE]
import { chromium } from '@playwright/test';
import { pathToFileURL } from 'node:url';

const [file, ...flags] = process.argv.slice(2);
const has = name => flags.includes(name);
const after = name => (has(name) ? flags[flags.indexOf(name) + 1] : undefined);
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu']
});
const found = { requests: [], messages: [], violations: [] };
try {
  const context = await browser.newContext({
    viewport: { width: 1100, height: 900 },
    colorScheme: has('--dark') ? 'dark' : 'light',
    javaScriptEnabled: !has('--no-script'),
    offline: true
  });
  const page = await context.newPage();
  const url = pathToFileURL(file).href;
  page.on('request', request => {
    if (request.url() !== url && !/^(data|blob):/.test(request.url())) {
      found.requests.push(request.url());
    }
  });
  page.on('console', message => found.messages.push(`${message.type()}: ${message.text()}`));
  page.on('pageerror', error => found.messages.push(`error: ${error.message}`));
  await page.goto(url, { waitUntil: 'load' });
  if (!has('--no-script')) {
    await page.waitForSelector('html[data-live]', { timeout: 30000 });
    Object.assign(found, await use(page));
  }
  found.text = await page.evaluate(() => document.body.innerText);
  found.svgs = await page.locator('figure svg:visible').count();
  if (after('--screenshot')) {
    await page.screenshot({ path: after('--screenshot'), fullPage: true });
  }
} finally {
  await browser.close();
}
console.log(JSON.stringify(found));

/** Hover over every chart, move the first slider to its start, and zoom the first heatmap. */
async function use(page) {
  const live = Number(await page.locator('html').getAttribute('data-live'));
  const tips = [];
  for (const stage of await page.locator('.stage').all()) {
    await stage.scrollIntoViewIfNeeded();
    const box = await stage.boundingBox();
    await page.mouse.move(box.x + box.width * 0.3, box.y + box.height * 0.4);
    await page.mouse.move(box.x + box.width * 0.3 + 2, box.y + box.height * 0.4);
    tips.push((await stage.locator('.jp-MegalensTooltip').innerText()).trim());
  }
  const result = { live, tips };
  const heatmap = page.locator('figure[data-step]').first();
  if ((await heatmap.count()) === 0) {
    return result;
  }
  const images = () =>
    heatmap
      .locator('.stage image')
      .evaluateAll(all => all.map(each => each.getAttribute('href') ?? each.getAttribute('xlink:href')));
  const slider = heatmap.locator('input[type=range]');
  if ((await slider.count()) > 0) {
    const before = await images();
    result.title = await heatmap.locator('h2').innerText();
    await slider.focus();
    await page.keyboard.press('Home');
    await page.waitForFunction(
      old => {
        const image = document.querySelector('figure[data-step] .stage image');
        return image && (image.getAttribute('href') ?? image.getAttribute('xlink:href')) !== old;
      },
      before[0],
      { timeout: 10000 }
    );
    // The title follows the picture.
    await page.waitForFunction(
      old => document.querySelector('figure[data-step] h2').innerText !== old,
      result.title,
      { timeout: 10000 }
    );
    result.movedTitle = await heatmap.locator('h2').innerText();
    result.steps = Number(await slider.getAttribute('max')) + 1;
    await page.keyboard.press('End');
  }
  const ticks = () => heatmap.locator('.stage .role-axis-label').allInnerTexts();
  const wide = await ticks();
  const stage = heatmap.locator('.stage');
  await stage.focus();
  const box = await stage.boundingBox();
  await page.mouse.move(box.x + box.width * 0.3, box.y + box.height * 0.4);
  await page.mouse.wheel(0, -400);
  await page.waitForFunction(
    old =>
      [...document.querySelectorAll('figure[data-step] .stage .role-axis-label')]
        .map(n => n.textContent)
        .join() !== old,
    wide.join(),
    { timeout: 10000 }
  );
  result.zoomed = true;
  await stage.dblclick({ position: { x: 200, y: 100 } });
  await page.mouse.move(5, 5);
  return result;
}

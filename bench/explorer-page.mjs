// The page's side of the explorer's benchmark: log in, open the view by its command, wait for lines on the canvas, zoom, and drag while frames are timed.
// Arguments come as JSON in BENCH_PAGE; the login token in BENCH_TOKEN, so that it is in no address and no process list.
import { chromium } from '@playwright/test';
import { openLab } from './lab-page.mjs';

const { url, run, view, screenshot, twice, panel } = JSON.parse(process.env.BENCH_PAGE);
const ZOOMS = 3;
const MOVES = 120;
const AFTERWARDS = 10_000;
const LOOKED = 3000;

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu', '--disable-background-networking']
});
try {
  const page = await browser.newPage({ viewport: { width: 1600, height: 1000 } });
  await openLab(page, url);
  await page.waitForFunction(() => window.jupyterapp.commands.hasCommand('megalens:open-moments'));
  if (panel) {
    await lookedAtPanel(page);
  }
  const opened = await page.evaluate(openedAfter, [run, view]);
  const seen = twice ? await openedAgain(page) : await panned(page);
  if (screenshot) {
    await page.screenshot({ path: screenshot });
  }
  process.stdout.write(JSON.stringify({ opened, ...seen }));
} finally {
  await browser.close();
}

/** Show the panel, and look at its run for as long as it takes to find a button. */
async function lookedAtPanel(page) {
  await page.evaluate(() => window.jupyterapp.commands.execute('megalens:open-panel'));
  await page.locator('.jp-MegalensPanel [role=option][aria-selected=true]').first().waitFor();
  await page.waitForTimeout(LOOKED);
}

/** Zoom, then drag the picture while frames are timed. */
async function panned(page) {
  const plot = page.locator('.jp-MegalensViewTab:visible .jp-MegalensPlot').first();
  const { x, y, width, height } = await plot.boundingBox();
  const [left, top] = [x + width / 2, y + height / 2];
  for (let zoom = 0; zoom < ZOOMS; zoom += 1) {
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
  for (let move = 1; move <= MOVES; move += 1) {
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
async function openedAgain(page) {
  await page.waitForTimeout(AFTERWARDS);
  await page.evaluate(() => window.jupyterapp.commands.execute('application:close'));
  return { again: await page.evaluate(openedAfter, [run, view]) };
}

/** Milliseconds from the command to the frame after something is drawn in the middle of the plot. */
async function openedAfter([id, options]) {
  const began = performance.now();
  void window.jupyterapp.commands.execute('megalens:open-moments', { run: id, ...options });
  const drawn = () =>
    [...document.querySelectorAll('.jp-MegalensViewTab .jp-MegalensPlot canvas')].some(canvas => {
      if (!canvas.offsetParent || canvas.width < 100) {
        return false;
      }
      const { width, height } = canvas;
      const area = [0.3 * width, 0.15 * height, 0.4 * width, 0.6 * height].map(Math.round);
      const { data } = canvas.getContext('2d').getImageData(...area);
      // Axes and grid are faint; a line is a colour.
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
    if (performance.now() - began > 120_000) {
      throw new Error('Nothing was drawn within two minutes.');
    }
  }
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

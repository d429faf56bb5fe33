// The page's side of the benchmark of attention: log in, open the view by its command, wait for colours on the canvas; and again in the same page.
// Arguments come as JSON in BENCH_PAGE; the login token in BENCH_TOKEN.
import { chromium } from '@playwright/test';
import { openLab } from './lab-page.mjs';

const { url, run, screenshot } = JSON.parse(process.env.BENCH_PAGE);
/** Until a view has taken in its tokens, ms. */
const SETTLED = 5000;
const COMMAND = 'megalens:open-attention';

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu', '--disable-background-networking']
});
try {
  const page = await browser.newPage({ viewport: { width: 1600, height: 1000 } });
  await openLab(page, url);
  await page.waitForFunction(id => window.jupyterapp.commands.hasCommand(id), COMMAND);
  const opened = await page.evaluate(openedAfter, [COMMAND, run]);
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
  const again = await page.evaluate(openedAfter, [COMMAND, run]);
  process.stdout.write(JSON.stringify({ opened, again, bytes, later }));
} finally {
  await browser.close();
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

/** Milliseconds from the command to the frame after something is drawn in the lower left of the plot, where queries look back. */
async function openedAfter([command, id]) {
  const began = performance.now();
  void window.jupyterapp.commands.execute(command, { run: id });
  const drawn = () =>
    [...document.querySelectorAll('.jp-MegalensViewTab .jp-MegalensPlot canvas')].some(canvas => {
      if (!canvas.offsetParent || canvas.width < 100) {
        return false;
      }
      const { width, height } = canvas;
      const area = [0.08 * width, 0.4 * height, 0.2 * width, 0.3 * height].map(Math.round);
      const { data } = canvas.getContext('2d').getImageData(...area);
      // Axes are grey; a probability is a colour.
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

// What every page of the benchmarks begins with.
import { chromium } from '@playwright/test';

/** Log in with the token in BENCH_TOKEN, which is so in no address and no process list, and wait until an empty JupyterLab is there. */
export async function openLab(page, url) {
  await page.goto(`${url}login`);
  await page.locator('#password_input').fill(process.env.BENCH_TOKEN);
  await page.locator('#login_submit').click();
  await page.waitForURL(address => !address.pathname.endsWith('/login'));
  await page.goto(`${url}lab?reset`);
  await page.waitForFunction(() => window.jupyterapp !== undefined, null, { timeout: 300_000 });
  await page.evaluate(() => window.jupyterapp.restored);
}

/** Open an empty JupyterLab in a browser of its own, give what uses it the page, and print as JSON what comes of that. */
export async function withLab(url, use) {
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu', '--disable-background-networking']
  });
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
    if (performance.now() - began > 120_000) {
      throw new Error('Nothing was drawn within two minutes.');
    }
  }
}

// How long JupyterLab's page takes until it is there: several openings, each in a browser context of its own.
import { chromium } from '@playwright/test';
import { openLab } from './lab-page.mjs';

const { url, rounds } = JSON.parse(process.env.BENCH_PAGE);
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu']
});
const seconds = [];
for (let round = 0; round < rounds; round++) {
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

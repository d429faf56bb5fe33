// The page's side of the browser benchmark: log in, open one heatmap per flag side by side, and note when each step is on the screen.
// Arguments come as JSON in BENCH_PAGE; the login token in BENCH_TOKEN, so that it is in no address and no process list.
import { chromium } from '@playwright/test';

const { url, run, flags, seconds, warmUp, screenshot } = JSON.parse(process.env.BENCH_PAGE);

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu']
});
try {
  const page = await browser.newPage({ viewport: { width: 1600, height: 900 } });
  await page.goto(`${url}login`);
  await page.locator('#password_input').fill(process.env.BENCH_TOKEN);
  await page.locator('#login_submit').click();
  await page.waitForURL(address => !address.pathname.endsWith('/login'));
  await page.goto(`${url}lab?reset`);
  await page.waitForFunction(() => window.jupyterapp !== undefined, null, { timeout: 90_000 });
  await page.evaluate(() => window.jupyterapp.restored);
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
  const session = await page.context().newCDPSession(page);
  const heap = async () => {
    await session.send('HeapProfiler.collectGarbage');
    const { usedSize, backingStorageSize = 0 } = await session.send('Runtime.getHeapUsage');
    return { usedSize, backingStorageSize };
  };
  await page.waitForTimeout(warmUp * 1000);
  const heaps = [{ at: 0, ...(await heap()) }];
  await page.evaluate(() => void window.benchDrawn.splice(0));
  const began = Date.now();
  const drawn = [];
  while (Date.now() - began < seconds * 1000) {
    await page.waitForTimeout(Math.min(10_000, seconds * 1000 - (Date.now() - began)));
    drawn.push(...(await page.evaluate(() => window.benchDrawn.splice(0))));
    if (Date.now() - began - heaps.at(-1).at * 1000 > 55_000 || Date.now() - began >= seconds * 1000) {
      heaps.push({ at: Math.round((Date.now() - began) / 1000), ...(await heap()) });
    }
  }
  if (screenshot) {
    await page.screenshot({ path: screenshot });
  }
  process.stdout.write(JSON.stringify({ drawn, heaps, seconds: (Date.now() - began) / 1000 }));
} finally {
  await browser.close();
}

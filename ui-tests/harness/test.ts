import { expect, test as base, type Page } from '@playwright/test';
import { URL_VARIABLE } from './serve';

export const url = (): string => process.env[URL_VARIABLE] ?? '';

interface IFixtures {
  /** A page of its own, for what is no view. */
  blank: Page;
}

interface IWorkerFixtures {
  kept: Page;
}

/**
 * Tests of views, whose `page` is empty and light when they begin.
 *
 * One is kept for all tests of a worker: to load its scripts takes longer than to draw a view, and `harness.clear` leaves nothing of the
 * test before. After one that failed Playwright starts another worker, and with it another page.
 */
export const test = base.extend<IFixtures, IWorkerFixtures>({
  kept: [
    async ({ browser }, use) => {
      const page = await browser.newPage();
      await page.goto(url());
      await page.waitForFunction(() => 'harness' in window);
      await use(page);
      await page.close();
    },
    { scope: 'worker' }
  ],
  page: async ({ kept, viewport }, use) => {
    await kept.evaluate(() => window.harness.clear());
    await kept.setViewportSize(viewport!);
    // No view has come under the pointer yet.
    await kept.mouse.move(0, 0);
    await use(kept);
  },
  blank: async ({ browser, viewport }, use) => {
    const page = await browser.newPage({ viewport });
    await use(page);
    await page.close();
  }
});

/** Change the theme of what is shown, and await that it is drawn anew. */
export async function setTheme(page: Page, theme: 'light' | 'dark'): Promise<void> {
  await page.evaluate(async name => {
    window.harness.theme(name);
    await window.harness.view?.settled();
  }, theme);
}

/**
 * Returns what tells how many milliseconds the page's main thread computes for each of `count` parts of something that is done.
 *
 * That is the time of the processor, not of the clock: whatever else the machine has to do adds nothing.
 */
export async function work(
  page: Page
): Promise<(count: number, done: () => Promise<unknown>) => Promise<number>> {
  const session = await page.context().newCDPSession(page);
  await session.send('Performance.enable', { timeDomain: 'threadTicks' });
  const soFar = async (): Promise<number> => {
    const { metrics } = await session.send('Performance.getMetrics');
    return 1000 * (metrics.find(({ name }) => name === 'TaskDuration')?.value ?? NaN);
  };
  return async (count, done) => {
    const before = await soFar();
    await done();
    return ((await soFar()) - before) / count;
  };
}

export { expect };

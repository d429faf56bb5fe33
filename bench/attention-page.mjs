// The page's side of the benchmark of attention: log in, open the view by its command, wait for colours on the canvas; and again in the same page.
// Arguments come as JSON in BENCH_PAGE; the login token in BENCH_TOKEN.
import { openedAfter, withLab } from './lab-page.mjs';

const { url, run, screenshot } = JSON.parse(process.env.BENCH_PAGE);
/** Until a view has taken in its tokens, ms. */
const SETTLED = 5000;
const COMMAND = 'megalens:open-attention';
/** The view, and the lower left of its plot, where queries look back. */
const OPENED = [COMMAND, { run }, [0.08, 0.4, 0.2, 0.3]];

await withLab(url, async page => {
  await page.waitForFunction(id => window.jupyterapp.commands.hasCommand(id), COMMAND);
  const opened = await page.evaluate(openedAfter, OPENED);
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
  const again = await page.evaluate(openedAfter, OPENED);
  return { opened, again, bytes, later };
});

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

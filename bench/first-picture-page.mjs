// How long a person waits for a live run: from the command to the Overview's first picture, and from the button that has a point traced to the first picture of it.
// Arguments come as JSON in BENCH_PAGE; the login token in BENCH_TOKEN.
import { writeFile } from 'node:fs/promises';
import { openedAfter, waited, withLab } from './lab-page.mjs';

const { url, run, flag, profile } = JSON.parse(process.env.BENCH_PAGE);
const MIDDLE = [0.2, 0.2, 0.6, 0.6];
const REST = 6000;
/** For what hangs: how fast the machine is decides nothing. */
const LIMIT = { timeout: 300_000 };

await withLab(url, async page => {
  const session = await page.context().newCDPSession(page);
  await session.send('Profiler.enable');
  await session.send('Performance.enable', { timeDomain: 'threadTicks' });
  await waited(
    'the commands of Megalens',
    page.waitForFunction(() => window.jupyterapp.commands.hasCommand('megalens:open-overview'), null, LIMIT)
  );
  const overview = await timed('overview', ['megalens:open-overview', { run }, MIDDLE]);
  await page.evaluate(() => window.jupyterapp.commands.execute('application:close'));
  await page.evaluate(options => void window.jupyterapp.commands.execute('megalens:open-heatmap', options), {
    run,
    flag,
    layers: 'all'
  });
  const trace = '.jp-MegalensState button';
  // The page is at rest when a person reads that nothing is traced: all that was recorded before has come.
  await page.waitForTimeout(REST);
  // A view of a point that a recording has draws that, and offers nothing.
  await waited(`the button that traces ${flag}`, page.locator(trace, { hasText: /^Trace / }).waitFor(LIMIT));
  const apply = await timed('apply', [null, trace, MIDDLE]);
  return { overview, apply };

  async function timed(name, what) {
    if (profile) {
      await session.send('Profiler.start');
    }
    const before = await computed();
    const took = await waited(`the first picture: ${name}`, page.evaluate(openedAfter, what));
    const thread = (await computed()) - before;
    if (profile) {
      const { profile: taken } = await session.send('Profiler.stop');
      await writeFile(`${profile}.${name}.cpuprofile`, JSON.stringify(taken));
    }
    return { took, thread };
  }

  /** Milliseconds that the page's main thread has computed: others that want the processor add nothing. */
  async function computed() {
    const { metrics } = await session.send('Performance.getMetrics');
    return 1000 * metrics.find(each => each.name === 'TaskDuration').value;
  }
});

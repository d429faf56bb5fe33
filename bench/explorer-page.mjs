// The page's side of the benchmarks of the explorer and of the timeline: log in, open the view by its command, wait for something on the canvas, zoom, and drag while frames are timed.
// Arguments come as JSON in BENCH_PAGE; the login token in BENCH_TOKEN, so that it is in no address and no process list.
import { openedAfter, withLab } from './lab-page.mjs';

const { url, run, command, view, screenshot, twice, panel } = JSON.parse(process.env.BENCH_PAGE);
const ZOOMS = 3;
const MOVES = 120;
const AFTERWARDS = 10_000;
const LOOKED = 3000;
/** The view, and the middle of its plot. */
const OPENED = [command, { run, ...view }, [0.3, 0.15, 0.4, 0.6]];

await withLab(url, async page => {
  await page.waitForFunction(() => window.jupyterapp.commands.hasCommand('megalens:open-panel'));
  if (panel) {
    await lookedAtPanel(page);
  }
  const opened = await page.evaluate(openedAfter, OPENED);
  const seen = twice ? await openedAgain(page) : await panned(page);
  if (screenshot) {
    await page.screenshot({ path: screenshot });
  }
  return { opened, ...seen };
});

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
  return { again: await page.evaluate(openedAfter, OPENED) };
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

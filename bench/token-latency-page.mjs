// The page's side of the benchmark of tokens: open the view Tokens and note when each text has how many letters.
// Arguments come as JSON in BENCH_PAGE; the login token in BENCH_TOKEN.
import { withLab } from './lab-page.mjs';

const { url, run, texts, tokens, prompt } = JSON.parse(process.env.BENCH_PAGE);
const COMMAND = 'megalens:open-tokens';

await withLab(url, async page => {
  await page.waitForFunction(id => window.jupyterapp.commands.hasCommand(id), COMMAND);
  await page.evaluate(
    ([id, options]) => void window.jupyterapp.commands.execute(id, options),
    [COMMAND, { run }]
  );
  const shown = await page.evaluate(watched, [texts, tokens, prompt]);
  return { shown };
});

/** Of each text that is written: at which times (ms since the epoch) it had how many new letters on the screen. */
async function watched([count, most, before]) {
  const frame = () => new Promise(resolve => requestAnimationFrame(resolve));
  const found = [];
  let last = '';
  const ends = performance.now() + 1000 * (50 + 9 * count);
  while (found.length < count || last.length < most) {
    if (performance.now() > ends) {
      throw new Error(`Only ${found.length} of ${count} texts came.`);
    }
    await frame();
    const label =
      [...document.querySelectorAll('.jp-MegalensViewTab [aria-label*="Text: "]')].at(-1)?.ariaLabel ?? '';
    const text = label.slice(label.lastIndexOf('Text: ') + 6 + before);
    if (!label || text === last) {
      continue;
    }
    // A text may be drawn for the first time when it is as long as the one before.
    if (!text.startsWith(last) || found.length === 0) {
      found.push([]);
    }
    last = text;
    await frame();
    found.at(-1).push([performance.timeOrigin + performance.now(), text.length]);
  }
  return found;
}

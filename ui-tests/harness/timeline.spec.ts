import { SHOWN, picture } from '../picture';
import { breaksNoRule } from './rules';
import { SMALL_RUN } from './small-run';
import { expect, setTheme, test } from './test';

test.beforeEach(({ page }) =>
  page.evaluate(shape => window.harness.show({ view: 'timeline' }, shape), SMALL_RUN)
);

test('keys and the minimap zoom and move, and the picture follows', async ({ page }) => {
  const shown = async (): Promise<number[]> => {
    const { x0, x1 } = (await page.evaluate(() => window.harness.domain())) as { x0: number; x1: number };
    return [x0, x1].map(Math.round);
  };
  await page.locator('.jp-MegalensStage').focus();
  await page.keyboard.press('w');
  await page.keyboard.press('d');
  await expect.poll(shown).toEqual([108, 588]);
  await page.keyboard.press('a');
  await page.keyboard.press('s');
  await expect.poll(shown).toEqual([0, 600]);
  const map = (await page.locator('.jp-MegalensMinimap').boundingBox())!;
  const plot = await page.evaluate(() => window.harness.plot());
  expect(Math.abs(map.x - plot.left)).toBeLessThan(2);
  expect(Math.abs(map.width - plot.width)).toBeLessThan(2);
  // Of steps 1 to 40, 100 ms each, it has looked at 3 to 8.
  const at = (ms: number): [number, number] => [
    map.x + ((ms + 200) / 4000) * map.width,
    map.y + map.height / 2
  ];
  const drag = async (from: number, to: number): Promise<void> => {
    await page.mouse.move(...at(from));
    await page.mouse.down();
    await page.mouse.move(...at(to), { steps: 4 });
    await page.mouse.up();
  };
  // A stretch of all, then the window, then its right edge.
  await drag(150, 300);
  await expect.poll(shown).toEqual([150, 300]);
  await drag(225, 375);
  await expect.poll(shown).toEqual([300, 450]);
  await drag(450, 600);
  await expect.poll(shown).toEqual([300, 600]);
  const slider = page.getByRole('slider', { name: 'Shown of all recorded time' });
  await expect(slider).toBeFocused();
  await expect(slider).toHaveAttribute('aria-valuetext', /^300.ms to 600.ms$/);
  await page.keyboard.press('Home');
  await expect.poll(shown).toEqual([0, 300]);
  await drag(1000, 1900);
  await expect(page.getByRole('button', { name: /^steps 12 to 21/ })).toBeVisible();
});

test('a drag over lanes sums their spans, in both themes', async ({ page }) => {
  const plot = await page.evaluate(() => window.harness.plot());
  await page.mouse.move(plot.left + plot.width / 6, plot.top + 5);
  await page.mouse.down();
  await page.mouse.move(plot.left + plot.width / 2, plot.top + plot.height - 5, { steps: 4 });
  await page.mouse.up();
  const notes = page.locator('.jp-MegalensNotes');
  await expect(notes).toContainText(/200.ms selected on 8 ranks: \d+ spans/);
  const rows = page.locator('.jp-MegalensTable tbody tr');
  await expect(rows.first()).toContainText('16');
  await expect(page.locator('.jp-MegalensPinned')).toHaveCount(1);
  // It zooms nothing.
  expect(await page.evaluate(() => window.harness.domain())).toMatchObject({ x0: 0, x1: 600 });
  for (const theme of SHOWN) {
    await setTheme(page, theme);
    await breaksNoRule(page, theme, 'timeline-sums');
    await picture(page, `timeline-sums-${theme}`, { fullPage: true });
  }
  await page.locator('.jp-MegalensStage').focus();
  await page.keyboard.press('Escape');
  await expect(rows).toHaveCount(0);
});

test('what is searched for is outlined, gone to, and counted', async ({ page }) => {
  await page.getByLabel('Find').fill('all_reduce');
  await page.getByLabel('Find').press('Enter');
  await expect(page.locator('.jp-MegalensNotes')).toContainText('48 spans have “all_reduce” in their name.');
  await page.getByRole('button', { name: 'Next', exact: true }).click();
  await page.keyboard.press('n');
  await expect(page.locator('.jp-MegalensNotes')).toContainText('2 of 48: rank');
  for (const theme of SHOWN) {
    await setTheme(page, theme);
    await picture(page, `timeline-found-${theme}`, { fullPage: true });
  }
});

import { picture } from '../picture';
import type { KitRows } from './kit-views';
import { breaksNoRule } from './rules';
import { expect, setTheme, test } from './test';

const WEIGHTS = ['attention.qkv', 'attention.out', 'mlp.fc1', 'mlp.fc2', 'embedding', 'head'];
const STEPS = Array.from({ length: 80 }, (_, at) => 10 * at);
const cells = WEIGHTS.flatMap((name, weight) =>
  STEPS.map(step => {
    const usual = 1 + weight + (step / 400) * (1 + Math.sin(weight + step / 90) / 4);
    return { name, step, value: name === 'mlp.fc2' && step === 520 ? 9 : usual };
  })
);
const WORK = ['read', 'decode', 'tokenize', 'wait'];
const spans = Array.from({ length: 4 }, (_, worker) =>
  Array.from({ length: 24 }, (__, at) => ({
    worker: `worker ${worker}`,
    begin: at * 50 + worker * 4,
    end: at * 50 + worker * 4 + 20 + 25 * ((at * 7 + worker * 3) % 5 === 0 ? 1 : 0.4),
    kind: WORK[(at + worker) % WORK.length] ?? '',
    file: `part-${at}.arrow`,
    step: Math.floor(at / 4)
  }))
).flat();
const words =
  'The run slows down whenever one rank waits for its data , and nobody sees it until the loss is late .'.split(
    ' '
  );
const tokens = words.map((word, position) => ({
  text: position === 0 ? word : ` ${word}`,
  norm: 3 + ((position * 5) % 7) / 2 + (word === 'waits' ? 6 : 0),
  position,
  layer: 3
}));

const columnsOf = (
  rows: readonly Readonly<Record<string, number | string>>[]
): Readonly<Record<string, readonly (number | string)[]>> =>
  Object.fromEntries(Object.keys(rows[0] ?? {}).map(name => [name, rows.map(row => row[name] ?? '')]));

const ROWS: KitRows = {
  weight_norms: columnsOf(cells),
  loader_spans: columnsOf(spans),
  token_norms: columnsOf(tokens)
};

for (const [kit, tip] of [
  ['lines', /mlp\.fc1/],
  ['matrix', /step/],
  ['lanes', /part-\d+\.arrow/],
  ['points', /step/],
  ['text', /norm/]
] as const) {
  test(`the kit of ${kit} answers the pointer and keys, and breaks no rule in either theme`, async ({
    page
  }) => {
    await page.setViewportSize({ width: 760, height: 560 });
    await page.evaluate(([name, rows]) => window.harness.showKit(name, rows), [kit, ROWS] as const);
    await expect(page.locator('.jp-MegalensView')).toHaveAttribute('data-state', 'drawn');
    for (const theme of ['light', 'dark'] as const) {
      await setTheme(page, theme);
      await breaksNoRule(page, theme, kit);
      await picture(page.locator('#view'), theme === 'light' ? `docs-kits-${kit}` : `kits-${kit}-dark`);
    }
    await setTheme(page, 'light');
    await page.locator('.jp-MegalensStage').focus();
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('ArrowRight');
    await expect(page.locator('[aria-live]').filter({ hasText: /\S/ })).not.toHaveCount(0);
    const box = await page.evaluate(() => window.harness.plot());
    await expect
      .poll(async () => {
        // Somewhere in the upper half there is something of each.
        for (const [across, down] of [
          [0.3, 0.5],
          [0.42, 0.5],
          [0.5, 0.15],
          [0.61, 0.3]
        ] as const) {
          await page.mouse.move(box.left + across * box.width, box.top + down * box.height);
          const said = page.locator('.jp-MegalensTooltip');
          if ((await said.isVisible()) && tip.test(await said.innerText())) {
            return true;
          }
        }
        return false;
      })
      .toBe(true);
  });
}

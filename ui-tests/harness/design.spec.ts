import COLORS from '#protocol/charts/colors.json';
import type { ConnectionState } from '../../src/store/source';
import { picture } from '../picture';
import { SMALL_RUN } from './small-run';
import { expect, setTheme, test } from './test';

/** Each state that a view may be in, and how the run is connected then; the picture stays where there is one. */
const STATES: readonly (readonly [name: string, kind: string, flag: string, connection: ConnectionState])[] =
  [
    ['empty', 'empty', 'HiddenStates', { kind: 'live' }],
    ['loading', 'loading', 'HiddenStates', { kind: 'connecting' }],
    ['stale', 'stale', 'MLP1_mat_mul', { kind: 'stale', since: Date.now() - 12_000 }],
    ['disconnected', 'disconnected', 'MLP1_mat_mul', { kind: 'closed', reason: 'gone', message: '' }],
    [
      'error',
      'error',
      'MLP1_mat_mul',
      {
        kind: 'closed',
        reason: 'version',
        message: 'This hub speaks megalens.v1, and this page megalens.v2. Install the same version in both.'
      }
    ]
  ];

test('every state is one sentence and what to do about it, and keeps the picture that was drawn', async ({
  page
}) => {
  for (const [name, kind, flag, connection] of STATES) {
    const drawn = flag === 'MLP1_mat_mul';
    await page.setViewportSize({ width: 520, height: drawn ? 260 : 90 });
    await page.evaluate(
      async ([options, shape, state]) => {
        await window.harness.show(options, shape);
        window.harness.run?.connect(state);
        await window.harness.view?.settled();
      },
      [{ view: 'heatmap', flag, layers: '2' } as const, SMALL_RUN, connection] as const
    );
    const state = page.locator(`:is(.jp-MegalensState, .jp-MegalensBanner)[data-kind="${kind}"]:visible`);
    await expect(state).toHaveCount(1);
    await expect(state.locator('p')).toHaveText(/^[^!]+[.…]$/);
    expect(await state.getByRole('button').count()).toBeGreaterThan(0);
    await expect(page.locator('.jp-MegalensView')).toHaveAttribute('data-state', drawn ? 'drawn' : 'none');
    await picture(page, `docs-design-${name}`);
  }
});

test('pictures of the anatomy of a view in both themes', async ({ page }) => {
  await page.setViewportSize({ width: 760, height: 520 });
  const events = [
    { kind: 'settings', first: 10, last: 10, text: 'Tile(96) → Tile(48), by ada' },
    { kind: 'lost', first: 50, last: 62, text: '13 steps did not arrive' }
  ] as const;
  await page.evaluate(
    shape => window.harness.show({ view: 'scalars', names: ['loss', 'held_out_loss'] }, shape),
    { ...SMALL_RUN, events }
  );
  for (const theme of ['light', 'dark'] as const) {
    await setTheme(page, theme);
    await expect(page.locator('.jp-MegalensView-title')).toBeVisible();
    await picture(page, `docs-design-view-${theme}`);
  }
});

test('a picture of the colours on both grounds', async ({ page }) => {
  await page.setViewportSize({ width: 760, height: 172 });
  await page.evaluate(colors => {
    const row = (name: string, all: readonly string[], ground: string, ink: string): string =>
      `<div style="display:flex;gap:8px;padding:6px 12px;background:${ground};color:${ink};font-size:11px;align-items:center">` +
      `<span style="width:90px">${name}</span>` +
      all.map(color => `<span style="background:${color};width:52px;height:12px"></span>`).join('') +
      '</div>';
    const { categorical, events, ink, layers, nonfinite, severity } = colors;
    const other = [...Object.values(severity), ...new Set(Object.values(events)), nonfinite[0]];
    document.body.innerHTML = (['light', 'dark'] as const)
      .map(tone => {
        const every = layers[tone].filter((_, at) => at % 2 === 0);
        const { ground, text } = ink[tone];
        return [
          row('series', categorical[tone], ground, text),
          row('layers, in order', every.slice(0, 9), ground, text),
          row('severity, events', other, ground, text)
        ].join('');
      })
      .join('');
  }, COLORS);
  await picture(page, 'docs-design-colors');
  await page.reload();
  await page.waitForFunction(() => 'harness' in window);
});

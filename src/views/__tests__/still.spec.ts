/**
 * @jest-environment node
 */
import { DARK_THEME, drawSVG, LIGHT_THEME, vegaLiteSpec } from '../../charts';
import type { ViewOptions } from '../../protocol/views.generated';
import { readView } from '../still';
import { fullRun, PICTURED } from './pictured';
import { checkStills } from './still-checks';

checkStills(PICTURED, fullRun);

it('draws for a page that gives the colours, without title and caption', async () => {
  const [still] = await readView(fullRun(), { view: 'scalars' });
  const svg = await drawSVG(still?.recipe as never, { theme: { ...DARK_THEME, muted: 'var(--muted)' } });
  expect(svg).toContain('var(--muted)');
  expect(svg).not.toContain(still?.title);
});

it('gives a Vega-Lite spec that holds its data', async () => {
  const [still] = await readView(fullRun(), { view: 'trend', flag: 'MLP1_mat_mul' });
  const spec = vegaLiteSpec(still?.recipe as never, { theme: LIGHT_THEME });
  expect(JSON.parse(JSON.stringify(spec))).toMatchObject({ datasets: { rows: expect.any(Array) } });
});

it('says why there is nothing to draw', async () => {
  const run = fullRun();
  run.rows = [];
  expect(await readView(run, { view: 'heatmap', flag: 'MLP1_mat_mul' })).toEqual([
    {
      title: 'MLP1 output',
      caption: ['This run holds no train step of MLP1 output.'],
      summary: '',
      recipe: null
    }
  ]);
  expect(await readView(run, { view: 'history', flag: 'MLP1_mat_mul' })).toHaveLength(1);
  expect(await readView(run, { view: 'statistics', stat: 'param' })).toMatchObject([
    { title: 'Parameter L2', caption: ['Parameters were not logged in this run; there are gradients.'] }
  ]);
});

it('names the flags that there are where one is named that is none, and not all of thousands', async () => {
  const run = fullRun();
  const said = async (view: 'heatmap' | 'trend' | 'history', flag: string): Promise<string | undefined> =>
    (await readView(run, { view, flag }))[0]?.caption.at(-1);
  for (const view of ['heatmap', 'trend', 'history'] as const) {
    expect(await said(view, 'NoSuchFlag')).toBe(
      "This run has no flag 'NoSuchFlag'. It has InputTokens, MLP1_mat_mul, RawAttentionScore_mat_mul, HiddenStates, Router."
    );
  }
  expect(await said('heatmap', 'Router')).toBe(
    'This model has no Router logits: its layers have no experts.'
  );
  const [flag] = run.hello?.flags ?? [];
  const many = Array.from({ length: 3000 }, (_, at) => ({ ...flag, name: `F${at}` }));
  run.hello = { ...run.hello, flags: many } as never;
  expect(await said('trend', 'x'.repeat(9000))).toMatch(
    /^This run has no flag 'x{100}'\. It has F0, .*, F23, and 2976 more\.$/
  );
  run.hello = { ...(run.hello as object | null), flags: [] } as never;
  expect(await said('trend', 'X')).toBe("This run has no flag 'X'.");
});

it('says nothing of the machine that it comes from', async () => {
  const run = fullRun();
  run.hello = { ...run.hello, origin: { kind: 'replay', name: '/home/ann/runs/a', steps: 'own' } } as never;
  const [still] = await readView(run, { view: 'scalars' });
  expect(still?.caption[0]).toBe('Replay of …/a.');
});

it('draws without the runs that cannot be opened, and says so', async () => {
  const gone = { list: () => Promise.resolve([]), acquire: () => Promise.reject(new Error('gone')) };
  for (const runs of [undefined, gone]) {
    const options: ViewOptions = { view: 'statistics', kind: 'lines', runs: ['r2'] };
    const [still] = await readView(fullRun(), options, runs ? { runs } : {});
    expect(still?.recipe).not.toBeNull();
    expect(still?.caption).toContain('The run r2 could not be opened here, so it is not drawn.');
  }
});

it('rejects options that the contract does not know', async () => {
  await expect(readView(fullRun(), { view: 'heatmap', flag: 'x', layers: 'some' })).rejects.toThrow('layers');
});

it('says of the text of a generation that nothing reads it, where that instrument was left out', async () => {
  await jest.isolateModulesAsync(async () => {
    const page = await import('../still');
    const [still] = await page.readView(fullRun(), { view: 'heatmap', flag: 'MLP1_mat_mul', generation: 0 });
    expect(still?.caption.at(-1)).toBe(
      'This installation of Megalens was built without what reads generated texts.'
    );
  });
});

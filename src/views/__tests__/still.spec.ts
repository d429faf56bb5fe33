/**
 * @jest-environment node
 */
import { existsSync, readFileSync } from 'fs';
import { dirname, join, relative } from 'path';
import { DARK_THEME, drawSVG, LIGHT_THEME, vegaLiteSpec } from '../../charts';
import type { ViewOptions } from '../../protocol/views.generated';
import { readView } from '../still';
import { fullRun, PICTURED } from './pictured';

const ROOM = join(__dirname, '..');

// The first test also loads and transforms Vega.
jest.setTimeout(30_000);

beforeAll(() => {
  for (const name of ['document', 'window', 'navigator', 'HTMLElement', 'Worker', 'requestAnimationFrame']) {
    Reflect.deleteProperty(globalThis, name);
  }
});

describe.each(PICTURED)('%s', (_, options) => {
  it('is read and drawn without a page', async () => {
    const stills = await readView(fullRun(), options);
    expect(stills.length).toBe(
      options.view === 'pipeline' || options.view === 'split'
        ? 3
        : options.view === 'history' ||
            options.view === 'health' ||
            (options.view === 'moments' && options.kind === 'overview')
          ? 2
          : 1
    );
    for (const { title, caption, summary, recipe } of stills) {
      expect(title).not.toBe('');
      expect(summary).not.toBe('');
      if (recipe === null) {
        throw new Error(`Expected a picture, got: ${caption.join(' ')}`);
      }
      const pictures = [...(recipe.datasets['pictures'] ?? [])];
      expect(pictures.every(({ url }) => String(url).startsWith('data:image/png;base64,'))).toBe(true);
      const svg = await drawSVG(recipe, { theme: LIGHT_THEME, words: { title, caption } });
      expect(svg).toContain('<svg');
      expect(svg).toContain(title.slice(0, 12));
      expect((svg.match(/<image /g) ?? []).length).toBe(pictures.length);
    }
  });

  it('takes no colours of its data from the theme, and gives those of a dark page where they are others', async () => {
    const plain = (svg: string): string => svg.replace(/clip\d+/g, 'clip');
    for (const { recipe, inDark } of await readView(fullRun(), options)) {
      const [light, dark] = [false, true].map(tone => ({ theme: { ...LIGHT_THEME, dark: tone } }));
      const [one, other] = [
        await drawSVG(recipe as never, light as never),
        await drawSVG(recipe as never, dark as never)
      ];
      expect(plain(one)).toBe(plain(other));
      if (inDark) {
        expect(plain(await drawSVG(inDark(), dark as never))).not.toBe(plain(one));
      }
    }
  });
});

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
  expect(await readView(run, { view: 'moments', stat: 'param' })).toMatchObject([
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
    const options: ViewOptions = { view: 'moments', kind: 'lines', runs: ['r2'] };
    const [still] = await readView(fullRun(), options, runs ? { runs } : {});
    expect(still?.recipe).not.toBeNull();
    expect(still?.caption).toContain('The run r2 could not be opened here, so it is not drawn.');
  }
});

it('rejects options that the contract does not know', async () => {
  await expect(readView(fullRun(), { view: 'heatmap', flag: 'x', layers: 'some' })).rejects.toThrow('layers');
});

/** The files of this room that a file brings with it, now or later. */
function reached(path: string, seen = new Set<string>()): Set<string> {
  if (!seen.has(path)) {
    seen.add(path);
    const text = readFileSync(path, 'utf8').replace(/^import type [^;]*;/gm, '');
    for (const [, name = ''] of text.matchAll(/(?:from|import\()\s*'(\.[^']*)'/g)) {
      const target = join(dirname(path), name);
      const file = [`${target}.ts`, join(target, 'index.ts')].find(existsSync);
      if (file?.startsWith(ROOM)) {
        reached(file, seen);
      }
    }
  }
  return seen;
}

it('reaches no code that needs a page', () => {
  const files = [...reached(join(ROOM, 'still.ts'))].map(path => relative(ROOM, path));
  expect(files.length).toBeGreaterThan(60);
  const page =
    /^mount\b|\b(document|window|navigator|localStorage)\b[.?[]|\b(HTML|SVG)\w*Element\b|\blumino\/widgets\b/;
  const needsPage = (name: string): boolean =>
    page.test(name) || page.test(readFileSync(join(ROOM, name), 'utf8'));
  expect(files.filter(needsPage)).toEqual([]);
});

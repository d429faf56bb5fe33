import { readFileSync, writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import {
  kitOptions,
  kits,
  type IViewDescriptor,
  type IViewModule,
  type KitMatrixOptions,
  type KitPointOptions
} from 'megalens';
import { registerView } from '../../../src/views/other-views';
import type { KitName } from '../../../src/protocol/kit-options';
import type { ViewOptions } from '../../../src/protocol/views.generated';
import { mountView } from '../../../src/views';
import { readView } from '../../../src/views/still';
import { MemoryRun } from '../../../src/store/__tests__/memory-run';
import { loadModel } from '../../../src/views/__tests__/model';
import type { IPlace } from '../../../src/charts';
import type { IViewEnvironment } from '../../../src/views/shared/view-model';
import type { IMark } from '../../../src/views/shared/content';
import { load as lanes } from '../lanes';
import { load as lines } from '../lines';
import { load as matrix } from '../matrix';
import { load as points } from '../points';
import { load as text } from '../text';

// The test also loads and transforms Vega.
jest.setTimeout(30_000);

const FOLDER = resolve(__dirname, '..');
const PAGE = resolve(__dirname, '../../../docs/kits.md');
const KITS = { lines, matrix, points, lanes, text } as const;
type Kit = keyof typeof KITS;
const NAMES = Object.keys(KITS) as Kit[];

/** Rows of the streams that the examples read. */
const ROWS: Readonly<Record<string, Readonly<Record<string, ArrayLike<unknown>>>>> = {
  loader_spans: {
    worker: ['w0', 'w0', 'w0', 'w1', 'w1'],
    begin: [0, 2, 6, 0, NaN],
    end: [10, 4, 9, 5, 3],
    kind: ['batch', 'read', 'decode', 'wait', 'wait'],
    file: ['', 'a.bin', 'b.bin', '', ''],
    step: [1, 1, 2, 1, 2]
  },
  token_norms: {
    text: ['sat', 'The', ' cat', '\n'],
    norm: [2, 1, 3, NaN],
    position: [3, 0, 1, 2],
    layer: [7, 7, 7, 7]
  },
  weight_norms: { name: ['fc', 'qkv', 'fc', 'qkv'], step: [1, 1, 2, 2], value: [4, 2, 6, 1] }
};

/** A run with these rows. */
function source(rows = ROWS): MemoryRun {
  return Object.assign(new MemoryRun(), {
    table: async (stream: string) => {
      const columns = rows[stream] ?? {};
      return { columns, length: Object.values(columns)[0]?.length ?? 0, evictedRows: 0, sampledEvery: 1 };
    }
  });
}

const descriptor = (kit: KitName): IViewDescriptor => ({
  name: `kit_${kit}`,
  title: kit,
  summary: kit,
  label: kit,
  command: `kits:${kit}`,
  offer: [],
  needs: { streams: [], flag: false },
  options: kitOptions(kit)
});

const optionsOf = (kit: Kit, more: object = {}): ViewOptions =>
  ({ view: `kit_${kit}`, ...more }) as unknown as ViewOptions;

// Each kit has options of its own.
beforeAll(() =>
  NAMES.forEach(kit => registerView(descriptor(kit), KITS[kit] as () => Promise<IViewModule<object>>))
);

const BLOCK = /<!-- (examples\/kits\/(\w+)\.ts) -->\n```ts\n([^]*?)```/g;

it('the page of kits shows the code that is tested here', () => {
  const page = readFileSync(PAGE, 'utf8');
  const shown = page.replace(BLOCK, (_, path: string, kit: string) => {
    const code = readFileSync(resolve(FOLDER, `${kit}.ts`), 'utf8');
    return `<!-- ${path} -->\n\`\`\`ts\n${code}\`\`\``;
  });
  if (process.env['WRITE_PAGE']) {
    writeFileSync(PAGE, shown);
  }
  expect([...page.matchAll(BLOCK)].map(([, , kit]) => kit)).toEqual(NAMES);
  expect(page).toBe(shown);
});

it.each(NAMES)('%s: a view without rows says so', async kit => {
  const node = document.createElement('div');
  const view = await mountView(node, source({}), optionsOf(kit), { renderer: 'svg' });
  await view.settled();
  expect(node.textContent).toMatch(/This run has no /);
  view.dispose();
});

it('lines of a stream are smoothed, hidden, and said', async () => {
  const node = document.createElement('div');
  const view = await mountView(node, source(), optionsOf('lines'), { renderer: 'svg' });
  await view.settled();
  expect(node.querySelectorAll('.mark-line path')).toHaveLength(2);
  expect(node.querySelector('.jp-MegalensView-title')?.textContent).toBe('Weight norms, steps 1 to 2');
  expect(view.summary()).toBe(
    'fc rose from 4 to 6 between step 1 and 2. qkv fell from 2 to 1 between step 1 and 2.'
  );
  await view.update({ hidden: ['fc'] } as Partial<ViewOptions>);
  expect(node.querySelectorAll('.mark-line path')).toHaveLength(1);
  view.dispose();
  const [still] = await readView(source(), optionsOf('lines', { smoothing: 2 }));
  const drawn = still?.recipe?.datasets['rows']?.map(row => [row['name'], row['x'], row['value']]);
  expect(drawn).toContainEqual(['fc', 2, 5]);
});

/** A place of a plot of 400 × 200 pixels. */
const place = (x: number, y: number): IPlace => ({
  frame: { left: 0, top: 0, width: 400, height: 200, facet: {} },
  ...{ x, y, down: 0 }
});

/** A zoom that shows a part of the x axis. */
const zoomedTo = (x0: number, x1: number, y0 = -0.5, y1 = 0.5): IViewEnvironment['zoom'] => ({
  domain: { x0, x1, y0, y1 },
  ...{ isDragging: false, isHome: false, isZoomed: true },
  reveal: () => undefined
});

type Model = Awaited<ReturnType<typeof loadModel>>['model'];

/** What a model says of a mark, in a line each. */
const said = (model: Model, mark: IMark | null): string[] | null => {
  const tip = mark && model.tipOf(mark);
  return tip && [tip.heading, ...tip.lines.map(({ name, value }) => `${name}: ${value}`)];
};

/** `fc` spikes at step 4, `qkv` has no row at step 2 and is not finite at step 5. */
const PLANTED = {
  weight_norms: {
    name: ['fc', 'qkv', 'fc', 'fc', 'qkv', 'fc', 'qkv', 'fc', 'qkv'],
    step: [1, 1, 2, 3, 3, 4, 4, 5, 5],
    value: [1, 2, 1, 1, 2, 9, 2, 1, NaN]
  }
};

it('a matrix says what is in each cell, and what departs most', async () => {
  const { model, loaded } = await loadModel(source(PLANTED), optionsOf('matrix'));
  const content = 'content' in loaded ? loaded.content : null;
  expect(content?.title).toBe('Weight norms, steps 1 to 5');
  expect(content?.extent).toEqual({ x: [0.5, 5.5], y: [-0.5, 1.5] });
  expect(content?.recipe?.params['rowText']).toEqual(['fc', 'qkv']);
  expect(content?.recipe?.params['legendText']).toContain('not finite');
  expect(content?.caption).toEqual(['Cells in which values are not finite are hatched.']);
  expect(content?.summary).toBe(
    'Cells that are not finite: 1, the first at step 5 in qkv. ' +
      'The largest value, 9, is at step 4 in fc; the smallest, 1, at step 1 in fc. ' +
      'Farthest from the middle of its row, 1, is 9 at step 4 in fc.'
  );
  expect(said(model, model.probe(place(4.2, -0.3)))).toEqual(['fc', 'step 4: 9']);
  expect(said(model, model.probe(place(2, 1)))).toEqual(['qkv', 'step 2: no value']);
  expect(model.probe(place(2, 2))).toBeNull();
  // The keys go on from where the pointer was.
  expect(['ArrowLeft', 'ArrowDown', 'End', 'copy'].map(key => model.move(key)?.said)).toEqual([
    'step 1, qkv: 2',
    'step 1, qkv: 2',
    'step 5, qkv: NaN',
    'step 5, qkv: NaN'
  ]);
  expect(model.insight?.()).toEqual({ facet: null, x: [4.5, 5.5], y: [0.5, 1.5] });
  expect(model.pointedBy({ facet: null, x: [3.5, 4.5], y: [-0.5, 0.5] })).toEqual({ step: 4, layer: null });
  expect(model.marksOf({ step: 3, layer: null }).marks).toEqual([{ facet: null, x: [3, 3], y: null }]);
  expect(model.stepAxis?.()?.stepsIn([1.5, 3.2])).toEqual([2, 3]);
});

it('rows of layers are marked where another view points at the layer, and colours are locked', async () => {
  const { matrix: kit, matrixOf } = await kits();
  const rows = {
    norms: { name: ['a', 'b', 'a', 'b'], layer: [3, 7, 3, 7], step: [1, 1, 2, 2], value: [-1, 2, 5, 400] }
  };
  const view = kit<KitMatrixOptions>({
    ...{ streams: ['norms'], subject: 'Norms', empty: '', quantity: 'norm', row: 'weight' },
    read: async ({ source: run }) =>
      matrixOf(await run.table('norms'), { row: 'name', step: 'step', value: 'value', layer: 'layer' })
  });
  registerView({ ...descriptor('matrix'), name: 'kit_layers', command: 'kits:layers' }, async () => ({
    view
  }));
  const optionsIn = (more: object = {}): ViewOptions =>
    ({ view: 'kit_layers', ...more }) as unknown as ViewOptions;
  const { model } = await loadModel(source(rows), optionsIn());
  const row = { facet: null, x: [0.5, 2.5], y: [0.5, 1.5] };
  expect(model.marksOf({ layer: 7, step: null }).marks).toEqual([row]);
  expect(model.marksOf({ layer: 4, step: null }).marks).toEqual([]);
  expect(model.pointedBy({ facet: null, x: [1.5, 2.5], y: [0.5, 1.5] })).toEqual({ step: 2, layer: 7 });
  const [light, locked] = [
    await readView(source(rows), optionsIn()),
    await readView(source(rows), optionsIn({ color_range: [0, 10] }))
  ].map(([still]) => still);
  // The middle of a scale of both signs is dark on a dark page.
  expect(light?.inDark?.().datasets['legend']).not.toEqual(light?.recipe?.datasets['legend']);
  expect(locked?.caption[0]).toBe(
    'Colours are locked from 0 to 10; cells outside, drawn as the nearer end: 2.'
  );
  expect(locked?.recipe?.params['legendText']).toEqual(['0', '2.5', '5', '7.5', '10']);
});

it('a matrix leaves a spike in a column of many steps, and reads the steps that are chosen', async () => {
  const steps = Array.from({ length: 20_000 }, (_, at) => at);
  const rows = {
    weight_norms: {
      name: steps.map(() => 'fc'),
      step: steps,
      value: steps.map(step => (step === 12_345 ? 50 : step % 2))
    }
  };
  const url = async (more: object): Promise<unknown> =>
    (await readView(source(rows), optionsOf('matrix', more)))[0]?.recipe?.datasets['pictures']?.[0]?.['url'];
  const [still] = await readView(source(rows), optionsOf('matrix'));
  expect(still?.caption.join(' ')).toContain('A column stands for several steps');
  expect(still?.summary).toContain('The largest value, 50, is at step 12\u202f345 in fc');
  expect(await url({ steps: [12_000, 13_000] })).not.toBe(await url({ steps: [13_001, 14_001] }));
  const [chosen] = await readView(source(rows), optionsOf('matrix', { steps: [10, 12] }));
  expect(chosen?.title).toBe('Weight norms, steps 10 to 12');
});

it('a matrix that is zoomed into has a column for each step, and reads nothing for it', async () => {
  const steps = Array.from({ length: 20_000 }, (_, at) => at);
  const run = source({ weight_norms: { name: steps.map(() => 'fc'), step: steps, value: steps } });
  const read = jest.spyOn(run, 'table');
  const { model, loaded } = await loadModel(run, optionsOf('matrix'), undefined, [], zoomedTo(99.5, 199.5));
  const content = 'content' in loaded ? loaded.content : null;
  expect(content?.extent.x.map(Math.round)).toEqual([-2, 20_001]);
  expect(content?.recipe?.datasets['pictures']).toMatchObject([{ x: -0.5, x2: 299.5 }]);
  expect(content?.caption).toEqual([]);
  expect(said(model, model.probe(place(150.2, 0)))).toEqual(['fc', 'step 150: 150']);
  await model.load(new AbortController().signal);
  expect(read).toHaveBeenCalledTimes(1);
  model.concerns({ kind: 'rows', stream: 'weight_norms', firstStep: 0, lastStep: 0 });
  await model.load(new AbortController().signal);
  expect(read).toHaveBeenCalledTimes(2);
});

it('a matrix over names has them under its columns', async () => {
  const { matrixOf } = await kits();
  const grid = matrixOf(await source(PLANTED).table('weight_norms'), {
    ...{ row: 'step', column: 'name', value: 'value' }
  });
  expect(grid.columns).toEqual(['fc', 'qkv']);
  expect(grid.rows[1]).toEqual({ name: '2', at: [0], values: [1] });
  const view = (await kits()).matrix<KitMatrixOptions>({
    ...{ streams: [], subject: 'Norms', empty: '', quantity: 'norm', row: 'step', column: 'weight' },
    read: () => grid
  });
  registerView({ ...descriptor('matrix'), name: 'kit_names', command: 'kits:names' }, async () => ({ view }));
  const options = { view: 'kit_names' } as unknown as ViewOptions;
  const { model, loaded } = await loadModel(source(PLANTED), options);
  const recipe = 'content' in loaded ? loaded.content.recipe : null;
  expect(recipe?.params['labels']).toEqual(['fc', 'qkv']);
  expect(recipe?.texts['xTitle']).toBe('weight');
  expect(said(model, model.probe(place(1, 0)))).toEqual(['1', 'qkv: 2']);
  expect(said(model, model.probe(place(1, 1)))).toEqual(['2', 'qkv: no value']);
  expect(model.stepAxis?.()).toBeUndefined();
});

it('points are near the pointer, next by a key, and hidden by their group', async () => {
  const { model, loaded } = await loadModel(source(PLANTED), optionsOf('points'));
  const content = 'content' in loaded ? loaded.content : null;
  expect(content?.recipe?.datasets['points']).toHaveLength(8);
  expect(content?.legend?.entries.map(({ id, isHidden }) => [id, isHidden])).toEqual([
    ['fc', false],
    ['qkv', false]
  ]);
  expect(content?.summary).toBe(
    'Points whose place is not finite, left out: 1. Points: 8; by weight: fc (5), qkv (3). ' +
      'step goes from 1 to 5, norm from 1 to 9. ' +
      'Farthest from the middle is fc: 1.8 times as far as the median point.'
  );
  // The picture counts downwards.
  expect(said(model, model.probe(place(4.01, -9)))).toEqual(['fc', 'weight: fc', 'step: 4', 'norm: 9']);
  expect(model.probe(place(2.5, -5))).toBeNull();
  expect(['ArrowDown', 'ArrowLeft', 'copy'].map(key => model.move(key)?.said)).toEqual([
    'qkv, qkv: 4 across, 2 up',
    'fc, fc: 4 across, 9 up',
    'fc, fc: 4 across, 9 up'
  ]);
  expect(model.insight?.()).toEqual(model.probe(place(4, -9)));
  const hidden = await loadModel(source(PLANTED), optionsOf('points', { hidden: ['fc'] }));
  const drawn = 'content' in hidden.loaded ? hidden.loaded.content : null;
  expect(drawn?.recipe?.datasets['points']).toHaveLength(3);
  expect(drawn?.recipe?.datasets['key']).toMatchObject([{ text: 'qkv' }]);
  expect(drawn?.caption).toEqual(['Hidden: fc.']);
  const none = await loadModel(source(PLANTED), optionsOf('points', { hidden: ['fc', 'qkv'] }));
  expect(none.loaded).toMatchObject({ state: { sentence: 'Every group here is hidden.' } });
});

it('points of a step or layer are marked with it, and have a unit as long across as up if they are asked', async () => {
  const { points: kit, pointsOf } = await kits();
  const rows = {
    places: { id: ['a', 'b', 'c'], x: [0, 30, 60], y: [0, 10, 0], step: [5, 6, 7], layer: [1, 2, 2] }
  };
  const view = kit<KitPointOptions>({
    ...{ streams: ['places'], subject: 'Places', empty: '', x: 'one', y: 'two', group: '', isSquare: true },
    read: async ({ source: run }) =>
      pointsOf(await run.table('places'), { name: 'id', x: 'x', y: 'y', step: 'step', layer: 'layer' })
  });
  registerView({ ...descriptor('points'), name: 'kit_square', command: 'kits:square' }, async () => ({
    view
  }));
  const options = { view: 'kit_square' } as unknown as ViewOptions;
  const { model, loaded } = await loadModel(source(rows), options);
  expect(loaded).toMatchObject({ content: { isSquare: true, extent: { x: [-3, 63], y: [-13, 3] } } });
  expect('content' in loaded && loaded.content.legend).toBeUndefined();
  const at = (mark: IMark | null | undefined): number => ((mark?.x[0] ?? NaN) + (mark?.x[1] ?? NaN)) / 2;
  expect(model.marksOf({ step: null, layer: 2 }).marks.map(at)).toEqual([30, 60]);
  expect(model.marksOf({ step: 5, layer: null }).marks.map(at)).toEqual([0]);
  const mark = model.probe(place(30, -10));
  expect(mark && model.pointedBy(mark)).toEqual({ step: 6, layer: 2 });
  expect(said(model, mark)).toEqual(['b', 'one: 30', 'two: 10', 'step: 6']);
  const steps = await loadModel(source(rows), { ...options, steps: [6, 9] } as unknown as ViewOptions);
  const drawn = 'content' in steps.loaded ? steps.loaded.content.recipe?.datasets['points'] : [];
  expect(drawn?.map(row => row['text'])).toEqual(['b', 'c']);
});

it('of very many points some are drawn, and one far out stays', async () => {
  const count = 60_000;
  const all = Array.from({ length: count }, (_, at) => at);
  const rows = {
    weight_norms: {
      name: all.map(() => 'fc'),
      step: all.map(at => (at === 777 ? 1e6 : at % 300)),
      value: all.map(at => (at === 777 ? 1e6 : at / 300))
    }
  };
  const [still] = await readView(source(rows), optionsOf('points'));
  const drawn = still?.recipe?.datasets['points'] ?? [];
  expect(drawn.length).toBeGreaterThan(15_000);
  expect(drawn.length).toBeLessThanOrEqual(20_000);
  expect(drawn.some(({ x, y }) => x === 1e6 && y === -1e6)).toBe(true);
  const near = await loadModel(source(rows), optionsOf('points'), undefined, [], zoomedTo(0, 9, -9, 0));
  const close = 'content' in near.loaded ? near.loaded.content : null;
  // What is shown, and as much on either side: each point of it.
  expect(close?.recipe?.datasets['points']).toHaveLength(18 * 19 + 1);
  expect(close?.caption).toEqual([]);
  expect(close?.extent).toEqual({ x: [-5e4, 1.05e6], y: [-1.05e6, 5e4] });
  expect(still?.caption.join(' ')).toMatch(/^Of 60.000 points 1\d.\d{3} are drawn/);
});

it('points are drawn on a page, whose legend hides them', async () => {
  const node = document.createElement('div');
  const view = await mountView(node, source(PLANTED), optionsOf('points'), { renderer: 'svg' });
  await view.settled();
  const dots = (): number =>
    node.querySelectorAll('.points path, .mark-symbol.role-mark.points_marks path').length;
  expect(dots()).toBe(8);
  const names = [...node.querySelectorAll('.jp-MegalensLegend-entry')].map(each => each.textContent);
  expect(names).toEqual(['fc', 'qkv']);
  await view.update({ hidden: ['fc'] } as Partial<ViewOptions>);
  expect(dots()).toBe(3);
  view.dispose();
});

const plain = (text = ''): string => text.replace(/[\u2009\u202f\u00a0]/g, ' ');

/** What a model says under the pointer. */
const tip = (model: Model, x: number, y: number): string[] | null =>
  said(model, model.probe(place(x, y)))?.map(plain) ?? null;

it('spans lie in their lanes, the deepest under the pointer, and keys go from one to the next', async () => {
  const { model, loaded } = await loadModel(source(), optionsOf('lanes'));
  if (!('content' in loaded)) {
    throw new Error('Expected a picture.');
  }
  const { extent, legend, recipe, summary } = loaded.content;
  expect(plain(summary)).toBe(
    'Left out, because their times are not finite or end before they begin: 1. 4 spans in 2 lanes. Longest: batch in w0, 10 ms. Of their time: batch 33.3 %, wait 33.3 %, decode 20 %, read 13.3 %.'
  );
  expect(extent).toEqual({ x: [0, 10], y: [-0.5, 1.5] });
  expect(legend?.entries.map(({ name }) => name)).toEqual(['batch', 'read', 'decode', 'wait']);
  const drawn = recipe?.datasets['pieces'] ?? [];
  const colors = new Map(legend?.entries.map(({ id, color }) => [color, id]));
  expect(drawn.map(row => [colors.get(String(row['color'])), row['x'], row['x2']])).toEqual([
    ['batch', 0, 10],
    ['read', 2, 4],
    ['decode', 6, 9],
    ['wait', 0, 5]
  ]);
  // What lies in another is drawn lower.
  expect(drawn.map(({ y }) => Number(y)).slice(0, 2)).toEqual([-0.44, 0]);
  expect(tip(model, 3, 0.2)).toEqual(['w0', 'a.bin: 2 ms', 'work: read', 'step: 1', 'from: 2 ms']);
  expect(tip(model, 5, 0)).toEqual(['w0', 'batch: 10 ms', 'step: 1', 'from: 0 ms']);
  expect(tip(model, 7, 1)).toBeNull();
  const words = ['ArrowRight', 'ArrowRight', 'ArrowRight', 'ArrowRight', 'ArrowDown', 'ArrowUp', 'copy'].map(
    key => plain(model.move(key)?.said)
  );
  const [batch, a, b, wait] = ['w0: batch, 10 ms', 'w0: a.bin, 2 ms', 'w0: b.bin, 3 ms', 'w1: wait, 5 ms'];
  expect(words).toEqual([batch, a, b, b, wait, batch, batch]);
  expect(model.insight?.()).toEqual({ facet: null, x: [0, 10], y: [-0.5, 0.5] });
  // Step 1 lasts from the first to the last of its spans, step 2 is inside of it.
  expect(model.stepAxis?.()?.spanOf([1, 1])).toEqual([0, 10]);
  expect(model.stepAxis?.()?.stepsIn([5, 9.5])).toEqual([2, 2]);
  expect(model.marksOf({ step: 2, layer: null }).marks).toEqual([{ facet: null, x: [6, 9], y: null }]);
  const under = model.probe(place(7, 0));
  expect(under && model.pointedBy(under)).toEqual({ step: 2, layer: null });
});

it('kinds of spans are hidden, and those narrower than a pixel joined', async () => {
  const hidden = await loadModel(source(), optionsOf('lanes', { hidden: ['batch', 'wait'] }));
  const { summary, caption } =
    'content' in hidden.loaded ? hidden.loaded.content : { summary: '', caption: [] };
  expect(plain(summary)).toContain(
    '2 spans in 2 lanes. Longest: b.bin in w0, 3 ms. Of their time: decode 60 %'
  );
  expect(caption).toEqual(['Hidden: batch, wait.']);
  // A lane of which all is hidden is passed over.
  const rest = await loadModel(source(), optionsOf('lanes', { hidden: ['batch', 'read', 'decode'] }));
  expect(plain(rest.model.move('ArrowRight')?.said)).toBe('w1: wait, 5 ms');
  expect(tip(hidden.model, 5, 0)).toBeNull();
  const count = 100_000;
  const each = <T>(of: (at: number) => T): T[] => Array.from({ length: count }, (_, at) => of(at));
  const many = {
    worker: each(() => 'w0'),
    begin: each(at => at),
    end: each(at => at + 0.5),
    kind: each(() => 'read')
  };
  const { model, loaded } = await loadModel(source({ loader_spans: many }), optionsOf('lanes'));
  const content = 'content' in loaded ? loaded.content : null;
  expect(plain(content?.summary)).toContain('100 000 spans in 1 lane.');
  // 800 pixels are 100 000 ms.
  expect(content?.recipe?.datasets['pieces']).toHaveLength(800);
  expect(content?.caption).toEqual(['Spans narrower than a pixel are joined: zoom in to see each.']);
  expect(tip(model, 130, 0)).toEqual(['w0', '125 spans: 124.5 ms', 'from: 125 ms']);
});

it('a text is read token by token, coloured by its values, and says the extremes', async () => {
  const { model, loaded } = await loadModel(source(), optionsOf('text'));
  const content = 'content' in loaded ? loaded.content : null;
  expect(plain(content?.summary)).toBe(
    'Not finite, norm: 1 of 4 tokens, first “⏎” at position 2. Highest norm: “ cat” at position 1, 3. Lowest norm: “The” at position 0, 1. Text: The cat⏎sat'
  );
  const { texts = [], boxes = [], lines = [] } = content?.recipe?.datasets ?? {};
  expect(texts.map(({ text, y }) => [text, y])).toEqual([
    ['The', 0],
    ['cat', 0],
    ['⏎', 0],
    ['sat', 1]
  ]);
  expect(new Set(boxes.map(({ color }) => color)).size).toBe(4);
  // What is not finite is crossed.
  expect(lines).toHaveLength(1);
  expect(tip(model, 4, 0)).toEqual(['“ cat”', 'position: 1', 'norm: 3', 'layer: 7']);
  expect(tip(model, 40, 0)).toBeNull();
  const words = ['ArrowRight', 'ArrowRight', 'ArrowDown', 'ArrowUp', 'End'].map(key =>
    plain(model.move(key)?.said)
  );
  expect(words.map(each => each.split(',')[0])).toEqual(['“The”', '“ cat”', '“sat”', '“The”', '“sat”']);
  expect(model.move('copy')?.copy).toBe('The cat\nsat');
  expect(model.insight?.()).toEqual(model.marksOf({ step: null, layer: null, position: 1 }).marks[0]);
  const locked = await loadModel(source(), optionsOf('text', { color_range: [0, 2] }));
  expect('content' in locked.loaded && locked.loaded.content.caption.join(' ')).toContain(
    'Colours are locked'
  );
});

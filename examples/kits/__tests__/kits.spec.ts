import { readFileSync, writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { kitOptions, type IViewDescriptor, type IViewModule } from 'megalens';
import { registerView } from '../../../src/views/other-views';
import type { KitName } from '../../../src/views/kits/options';
import type { ViewOptions } from '../../../src/protocol/views.generated';
import { mountView } from '../../../src/views';
import { readView } from '../../../src/views/still';
import { MemoryRun } from '../../../src/store/__tests__/memory-run';
import { loadModel } from '../../../src/views/__tests__/model';
import type { IViewModel } from '../../../src/views/shared/definition';
import { load as lanes } from '../lanes';
import { load as lines } from '../lines';
import { load as text } from '../text';

// The test also loads and transforms Vega.
jest.setTimeout(30_000);

const FOLDER = resolve(__dirname, '..');
const PAGE = resolve(__dirname, '../../../docs/kits.md');
const KITS = { lines, lanes, text } as const;
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

const plain = (text = ''): string => text.replace(/[\u2009\u202f\u00a0]/g, ' ');
const FRAME = { left: 0, top: 0, width: 400, height: 200, facet: {} };

/** What a model says under the pointer, heading first. */
function tip(model: IViewModel, x: number, y: number): string[] | null {
  const mark = model.probe({ frame: FRAME, x, y, down: 0 });
  const found = mark && model.tipOf(mark);
  return found && [found.heading, ...found.lines.map(({ name, value }) => plain(`${name}: ${value}`))];
}

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
  const said = ['ArrowRight', 'ArrowRight', 'ArrowRight', 'ArrowRight', 'ArrowDown', 'ArrowUp', 'copy'].map(
    key => plain(model.move(key)?.said)
  );
  const [batch, a, b, wait] = ['w0: batch, 10 ms', 'w0: a.bin, 2 ms', 'w0: b.bin, 3 ms', 'w1: wait, 5 ms'];
  expect(said).toEqual([batch, a, b, b, wait, batch, batch]);
  expect(model.insight?.()).toEqual({ facet: null, x: [0, 10], y: [-0.5, 0.5] });
  // Step 1 lasts from the first to the last of its spans, step 2 is inside of it.
  expect(model.stepAxis?.()?.spanOf([1, 1])).toEqual([0, 10]);
  expect(model.stepAxis?.()?.stepsIn([5, 9.5])).toEqual([2, 2]);
  expect(model.marksOf({ step: 2, layer: null }).marks).toEqual([{ facet: null, x: [6, 9], y: null }]);
  const under = model.probe({ frame: FRAME, x: 7, y: 0, down: 0 });
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
  const said = ['ArrowRight', 'ArrowRight', 'ArrowDown', 'ArrowUp', 'End'].map(key =>
    plain(model.move(key)?.said)
  );
  expect(said.map(each => each.split(',')[0])).toEqual(['“The”', '“ cat”', '“sat”', '“The”', '“sat”']);
  expect(model.move('copy')?.copy).toBe('The cat\nsat');
  expect(model.insight?.()).toEqual(model.marksOf({ step: null, layer: null, position: 1 }).marks[0]);
  const locked = await loadModel(source(), optionsOf('text', { color_range: [0, 2] }));
  expect('content' in locked.loaded && locked.loaded.content.caption.join(' ')).toContain(
    'Colours are locked'
  );
});

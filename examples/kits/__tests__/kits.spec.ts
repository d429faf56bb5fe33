import { readFileSync, writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { kitOptions, type IViewDescriptor } from 'megalens';
import { registerView } from '../../../src/views/other-views';
import type { KitName } from '../../../src/views/kits/options';
import type { ViewOptions } from '../../../src/protocol/views.generated';
import { mountView } from '../../../src/views';
import { readView } from '../../../src/views/still';
import { MemoryRun } from '../../../src/store/__tests__/memory-run';
import { load as lines } from '../lines';

// The test also loads and transforms Vega.
jest.setTimeout(30_000);

const FOLDER = resolve(__dirname, '..');
const PAGE = resolve(__dirname, '../../../docs/kits.md');
const KITS = { lines } as const;
type Kit = keyof typeof KITS;
const NAMES = Object.keys(KITS) as Kit[];

/** Rows of the streams that the examples read. */
const ROWS: Readonly<Record<string, Readonly<Record<string, ArrayLike<unknown>>>>> = {
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

beforeAll(() => NAMES.forEach(kit => registerView(descriptor(kit), KITS[kit])));

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

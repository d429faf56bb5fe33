import { registerSlices } from '../../slice';
import { MemoryRun } from '../../store/__tests__/memory-run';
import type { Hello, Status } from '../../protocol/messages.generated';
import { mountView } from '../registry';
import { costFacts } from '../overview/cost-tile';
import { newest } from '../overview/news-tile';
import { offersOf } from '../overview/offer-tile';
import { robustRange } from '../shared/robust-range';
import { sizeWords } from '../shared/states';
import type { IFound, ITiles } from '../overview/tiles';
import { untranslated as t } from '../shared/translate';

const news = (step: number, subject: string, tone: 'critical' | 'warning' = 'warning'): IFound => ({
  news: [{ step, subject, tone, text: `${subject} at ${step}`, opens: { view: 'scalars' } }],
  looked: []
});
const plain = (text: string): string => text.replace(/[\u202f\u00a0]/g, ' ');

it('tells the newest three, and of a step and subject what a rule says', () => {
  const found = newest([
    news(10, 'loss'),
    news(30, 'loss'),
    news(30, 'loss', 'critical'),
    news(20, 'a'),
    news(15, 'b')
  ]);
  expect(found.map(({ step, subject, tone }) => [step, subject, tone])).toEqual([
    [30, 'loss', 'critical'],
    [20, 'a', 'warning'],
    [15, 'b', 'warning']
  ]);
  // What is critical stays, however many others came after it.
  const later = newest([news(10, 'loss', 'critical'), news(20, 'a'), news(30, 'b'), news(40, 'c')]);
  expect(later.map(({ step }) => step)).toEqual([40, 30, 10]);
});

it('cuts the range of colours only where a few values dwarf all others', () => {
  const even = Array.from({ length: 1000 }, (_, at) => at);
  expect(robustRange([even])).toBeNull();
  expect(robustRange([[5, 5, 5]])).toBeNull();
  const [low = NaN, high = NaN] = robustRange([even, [1e6], [NaN]]) ?? [];
  expect(low).toBeGreaterThanOrEqual(0);
  expect(high).toBeLessThan(1000);
});

it('says what tracing costs, how large the recording is, and when it is full', () => {
  const status: Status = {
    type: 'status',
    state: 'training',
    step: 5,
    overhead: { percent: 0.6, low: 0.4, high: 0.8 },
    bytes_per_step: 1000,
    recording: { state: 'on', bytes: 400_000, limit_bytes: 1_000_000 },
    dropped: { producer: 1, viewer: 0, recorder: 2 }
  };
  const words = (over: boolean): string[] =>
    costFacts(status, over, t).map(({ name, value }) => plain(`${name} ${value}`));
  expect(words(false)).toEqual([
    'tracing 0.6 % ± 0.2',
    'sent 1 kB a step',
    'recording 400 kB of 1 MB',
    'full in ≈ 600 steps',
    'dropped 3'
  ]);
  expect(words(true)).not.toContain('full in ≈ 600 steps');
});

it('offers what can be traced with the forecast of its size, the cheapest first', () => {
  const { hello } = new MemoryRun();
  const flags = hello?.flags.map(flag => ({
    ...flag,
    axes: ['position', 'feature'],
    features: 256,
    bytes_per_layer: 4 * 32 * 256,
    compressor: { name: 'Tile', params: { tiles: 16 } }
  }));
  const noop = { name: 'NoOp', params: {} };
  const [cheap] = flags ?? [];
  const dear = { ...cheap!, name: 'dear', features: 1024, bytes_per_layer: 4 * 32 * 1024, compressor: noop };
  const [offer, second] = offersOf({ ...(hello as Hello), flags: [dear, cheap!] });
  expect([offer?.flag.name, second?.flag.name]).toEqual([cheap?.name, 'dear']);
  const layers = offer?.flag.layers.length ?? 0;
  const parts = Math.max(1, offer?.flag.parts.length ?? 0);
  expect(offer?.bytes).toBe(layers * (32 * 16 * 4 + parts * 192));
  const price = (status: Partial<Status>): string =>
    plain(sizeWords(1000, { status: { type: 'status', state: 'training', step: 9, ...status } }, t));
  expect(price({})).toBe('≈ 3.98 kB a micro-batch');
  expect(price({ micro_batches: 8 })).toBe('≈ 31.8 kB a step');
});

describe('on a page', () => {
  const node = document.createElement('div');
  const broken: ITiles = {
    streams: [],
    tiles: [
      {
        id: 'broken',
        order: 0,
        title: 'Broken',
        create: () => {
          throw new Error('this tile cannot be made');
        }
      }
    ]
  };

  afterEach(() => document.body.replaceChildren());

  it('a tile that cannot be made says so, and the others are drawn; headings open views', async () => {
    document.body.append(node);
    registerSlices([{ name: 'test', views: {}, tiles: () => Promise.resolve(broken) }]);
    const run = new MemoryRun();
    const opened: string[] = [];
    const view = await mountView(
      node,
      run,
      { view: 'overview' },
      {
        renderer: 'svg',
        openView: ({ view: name }) => void opened.push(name)
      }
    );
    await view.settled();
    expect(node.querySelector('.jp-mod-broken')?.textContent).toContain('this tile cannot be made');
    expect(node.querySelectorAll('.jp-MegalensTile').length).toBeGreaterThan(3);
    node.querySelector<HTMLElement>('.jp-MegalensTile-heading button')?.click();
    expect(opened).toEqual(['scalars']);
    expect(view.summary()).not.toBe('');
    view.dispose();
    expect(node.childElementCount).toBe(0);
  });
});

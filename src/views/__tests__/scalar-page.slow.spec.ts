import { MemoryRun } from '../../store/__tests__/memory-run';
import type { ScalarsOptions } from '../../protocol/views.generated';
import { type IView, type IViewRuns } from '..';
import { sectionsOf } from '../scalars/scalars-view';
import { caption, showView, texts, title, update } from './page';

const NAMES = ['loss', 'train/acc', 'train/lr', 'eval/acc'];

function runOf(id: string, factor: number): MemoryRun {
  const run = new MemoryRun(undefined, id);
  run.name = id;
  run.units = Object.fromEntries(NAMES.map(name => [name, '']));
  for (const name of NAMES) {
    for (let step = 1; step <= 5; step += 1) {
      run.numbers.push({ step, name, value: factor * step });
    }
  }
  return run;
}

const others = [runOf('base', 1), runOf('hot', 3), runOf('hot-2', 4)];
const runs: IViewRuns = {
  list: () => Promise.resolve(others.map(({ id, name }) => ({ id, name }))),
  acquire: id => Promise.resolve({ source: others.find(each => each.id === id)!, dispose: () => undefined })
};

let view: IView;
const node = (): HTMLElement => document.body;
const pictures = (): string[] => texts('.jp-mod-small .jp-MegalensTile-heading');

async function show(options: Partial<ScalarsOptions>, run = runOf('own', 2)): Promise<void> {
  view = await showView(run, { view: 'scalars', kind: 'page', ...options }, { runs });
}

it('draws a small picture of each scalar, in sections that fold and are found by a search', async () => {
  await show({});
  expect(texts('.jp-MegalensFoldLine')).toEqual(['▾ without a section (1)', '▾ eval (1)', '▾ train (2)']);
  expect(pictures()).toEqual(['loss', 'acc', 'acc', 'lr']);
  expect(node().querySelectorAll('.jp-mod-small .jp-MegalensPlot svg')).toHaveLength(4);
  const [, , train] = node().querySelectorAll<HTMLButtonElement>('.jp-MegalensFoldLine > button');
  train!.click();
  await view.settled();
  // What is folded is an option, and so kept in a layout.
  expect(view.options).toMatchObject({ folded: ['train'] });
  expect(pictures()).toEqual(['loss', 'acc']);
  expect(train!.getAttribute('aria-expanded')).toBe('false');
  await update({ folded: [], search: 'ACC' });
  expect(pictures()).toEqual(['acc', 'acc']);
  await update({ search: 'acc eval' });
  expect(pictures()).toEqual(['acc']);
  node().querySelector<HTMLButtonElement>('.jp-MegalensTile-heading button')!.click();
  await view.settled();
  expect(view.options).toMatchObject({ kind: 'lines', names: ['eval/acc'] });
  expect(pictures()).toEqual([]);
});

it('sorts numbers in names as numbers', () => {
  expect([...sectionsOf(['a/x10', 'a/x9', 'b'])]).toEqual([
    ['', ['b']],
    ['a', ['a/x9', 'a/x10']]
  ]);
});

it('makes a picture once its place comes into sight', async () => {
  const seen = new Map<Element, (entries: { isIntersecting: boolean }[]) => void>();
  Reflect.set(
    globalThis,
    'IntersectionObserver',
    class {
      constructor(private readonly call: (entries: { isIntersecting: boolean }[]) => void) {}
      observe = (element: Element): void => void seen.set(element, this.call);
      disconnect = (): void => undefined;
    }
  );
  try {
    await show({});
    const places = [...node().querySelectorAll('.jp-mod-small')];
    expect(node().querySelectorAll('.jp-mod-small .jp-MegalensView')).toHaveLength(0);
    seen.get(places[1]!)!([{ isIntersecting: true }]);
    await view.settled();
    expect(places.map(each => each.querySelector('.jp-MegalensPlot svg') !== null)).toEqual([
      false,
      true,
      false,
      false
    ]);
  } finally {
    Reflect.deleteProperty(globalThis, 'IntersectionObserver');
  }
});

it('tells runs by colours, and those of one name are a group', async () => {
  await show({ runs: ['base', 'hot', 'hot-2'], aliases: ['', '', 'warm', 'warm'] });
  const colors = (): (string | undefined)[] =>
    [...node().querySelectorAll<HTMLElement>('.jp-mod-colored')].map(each =>
      each.style.getPropertyValue('--megalens-swatch')
    );
  expect(texts('.jp-mod-colored')).toEqual(['own', 'base✕', 'warm✕', 'warm✕']);
  const [own, base, warm, again] = colors();
  expect(new Set([own, base, warm]).size).toBe(3);
  expect(again).toBe(warm);
  const legend = node().querySelector('.jp-mod-small .jp-MegalensLegend');
  expect([...legend!.querySelectorAll('.jp-MegalensLegend-entry')].map(each => each.textContent)).toEqual([
    'own',
    'base',
    'warm'
  ]);
  // A run that is not compared any more takes its name along.
  [...node().querySelectorAll<HTMLElement>('.jp-mod-chip')]
    .find(each => each.textContent === 'base✕')!
    .click();
  await view.settled();
  expect(view.options).toMatchObject({ runs: ['hot', 'hot-2'], aliases: ['', 'warm', 'warm'] });
});

it('draws differences to the run that is pinned as the baseline', async () => {
  await show({
    kind: 'lines',
    names: ['loss'],
    runs: ['base', 'hot'],
    compare: 'difference',
    baseline: 'hot'
  });
  expect(title()).toMatch(/^Difference, own, base minus hot: loss/);
  expect(caption()).toContain('own, base minus hot.');
  // At step 5: 2 × 5 and 1 × 5, minus 3 × 5.
  expect(view.summary()).toMatch(/−5/);
  await update({ baseline: null });
  expect(title()).toMatch(/^Difference, base, hot minus this run: loss/);
});

it('leaves outliers out of the axis on demand, says so, and proposes a log scale', async () => {
  const run = runOf('own', 2);
  run.numbers = Array.from({ length: 300 }, (_, step) => ({
    step,
    name: 'loss',
    value: step === 200 ? 5000 : 2 + Math.sin(step)
  }));
  await show({ kind: 'lines', names: ['loss'] }, run);
  const note = (): HTMLElement | null => node().querySelector('.jp-MegalensNote');
  expect(note()?.textContent).toContain('× what 99 of 100 stay below.');
  await update({ ignore_outliers: true });
  expect(note()).toBeNull();
  expect(caption()).toContain('Outliers, which lie outside of the axis: 1; the farthest is 5');
  await update({ ignore_outliers: false });
  note()!.querySelector('button')!.click();
  await view.settled();
  expect(view.options).toMatchObject({ transform: 'log' });
  expect(note()).toBeNull();
});

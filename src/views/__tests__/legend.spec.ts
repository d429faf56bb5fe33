import { grads } from '../../store/__tests__/memory-moments';
import type { ViewOptions } from '../../protocol/views.generated';
import { MemoryRun } from '../../store/__tests__/memory-run';
import { toCode } from '../code';
import { readView } from '../still';
import type { IView } from '../view';
import { loadModel } from './model';
import { showView, update } from './page';

/** Three layers of a tensor and three scalars; the last of each is a hundred times as large, and moves. */
function runOf(): MemoryRun {
  const run = new MemoryRun();
  run.connection = { kind: 'recorded' };
  run.units = { 'loss/a': 'nats', 'loss/b': 'nats', 'loss/c': 'nats' };
  for (const step of [10, 20, 30]) {
    for (const [layer, size] of [0.5, 1, 100].entries()) {
      run.add({ step, layer, values: new Float32Array(6).fill(layer === 2 ? size * step : size) });
    }
    run.numbers.push(
      { step, name: 'loss/a', value: 1 },
      { step, name: 'loss/b', value: 2 },
      { step, name: 'loss/c', value: 100 * step }
    );
  }
  run.log(...grads(2, 3, (step, layer) => ({ std: layer === 1 ? 100 * step : layer + 2 })));
  return run;
}

const VIEWS: [string, ViewOptions, string[]][] = [
  ['scalars', { view: 'scalars' }, ['loss/a', 'loss/b', 'loss/c']],
  ['trend', { view: 'trend', flag: 'MLP1_mat_mul', statistic: 'kept_mean' }, ['0', '1', '2']],
  ['moments', { view: 'statistics', by: ['layer'], statistic: 'std' }, ['[null]', '0', '1']],
  ['layers', { view: 'statistics', kind: 'layers', by: ['layer', 'family'] }, ['mlp', 'self_attention']]
];

describe.each(VIEWS)('lines of %s', (_, options, ids) => {
  const last = ids[ids.length - 1] ?? '';
  const lines = (recipe: { datasets: Readonly<Record<string, readonly object[]>> } | null): string[] => [
    ...new Set((recipe?.datasets['rows'] ?? []).map(row => String('name' in row ? row.name : '')))
  ];

  it('that are hidden are not drawn, not told and not spoken of, but named; the axis is that of the others', async () => {
    const [all] = await readView(runOf(), options);
    const [some] = await readView(runOf(), { ...options, hidden: [last] } as ViewOptions);
    const [names, left] = [lines(all?.recipe ?? null), lines(some?.recipe ?? null)];
    expect(names).toHaveLength(ids.length);
    expect(left).toHaveLength(ids.length - 1);
    const gone = names.find(name => !left.includes(name)) ?? '';
    expect(some?.caption).toContain(`1 line is hidden: ${gone}.`);
    expect(some?.summary).not.toContain(gone);
    if (last !== 'self_attention') {
      expect(Number(some?.recipe?.params['y1'])).toBeLessThan(10);
      expect(Number(all?.recipe?.params['y1'])).toBeGreaterThan(250);
    }
    const { model } = await loadModel(runOf(), { ...options, hidden: [last] } as ViewOptions);
    const at = options.view === 'statistics' ? (last === '1' ? 3 : 0) : 30;
    const tip = model.tipOf({ facet: null, x: [at, at], y: null });
    expect(tip?.lines.map(line => line.name)).toEqual(left);
  });

  it('keep their colours whichever others are hidden, in a tab, a cell and a report', async () => {
    const colorsOf = async (hidden: string[]): Promise<Map<string, unknown>> => {
      const [still] = await readView(runOf(), { ...options, hidden } as ViewOptions);
      const { node } = await showView(runOf(), { ...options, hidden } as ViewOptions);
      const drawn = [...node.querySelectorAll('.mark-line path')].map(each => each.getAttribute('stroke'));
      const rows = still?.recipe?.datasets['rows'] ?? [];
      const colors = new Map(rows.map(row => [String(row['name']), row['color']]));
      expect(drawn).toEqual([...colors.values()]);
      return colors;
    };
    const whole = await colorsOf([]);
    const [first = ''] = ids;
    for (const [name, color] of await colorsOf([first])) {
      expect(color).toBe(whole.get(name));
    }
  });
});

describe('the legend', () => {
  let view: IView;
  let node: HTMLElement;
  beforeEach(async () => {
    view = await showView(runOf(), { view: 'scalars' });
    ({ node } = view);
  });

  const button = (name: string): HTMLButtonElement =>
    [...node.querySelectorAll<HTMLButtonElement>('.jp-MegalensLegend button')].find(each =>
      each.textContent?.includes(name)
    ) as HTMLButtonElement;
  const click = async (name: string, init: MouseEventInit = {}): Promise<void> => {
    button(name).dispatchEvent(new MouseEvent('click', { bubbles: true, detail: 1, ...init }));
    await view.settled();
  };
  const pressed = (): string[] =>
    [...node.querySelectorAll('[aria-pressed="true"]')].map(each => each.textContent ?? '');
  const hidden = (): unknown => (view.options as { hidden: string[] }).hidden;

  it('hides and shows a line by its name, and keeps that in the options and in the code', async () => {
    await click('loss/c');
    expect(hidden()).toEqual(['loss/c']);
    expect(toCode(view.options as ViewOptions)).toBe('run.scalars_view(hidden=["loss/c"])');
    expect(pressed()).toEqual(['loss/a', 'loss/b']);
    expect(node.querySelectorAll('.mark-line path')).toHaveLength(2);
    await click('loss/c');
    expect(hidden()).toEqual([]);
    expect(pressed()).toHaveLength(3);
  });

  it('shows one line alone by Alt or by pressing twice, and all again', async () => {
    await click('loss/b', { altKey: true });
    expect(hidden()).toEqual(['loss/a', 'loss/c']);
    expect(button('show all').textContent).toBe('2 hidden: show all');
    expect(button('show all').title).toBe('loss/a, loss/c');
    await click('show all');
    expect(hidden()).toEqual([]);
    await click('loss/a');
    await click('loss/a', { detail: 2 });
    expect(hidden()).toEqual(['loss/b', 'loss/c']);
    // Alone already: all come back.
    await click('loss/a', { altKey: true });
    expect(hidden()).toEqual([]);
  });

  it('shows all where the last one is hidden, and says so where options hide every line', async () => {
    await click('loss/b', { altKey: true });
    await click('loss/b');
    expect(hidden()).toEqual([]);
    await update({ hidden: ['loss/a', 'loss/b', 'loss/c'] });
    expect(node.querySelector('.jp-MegalensState')?.textContent).toContain('Every line here is hidden.');
    node.querySelector<HTMLButtonElement>('.jp-MegalensState button')?.click();
    await view.settled();
    expect(pressed()).toHaveLength(3);
  });

  it('is one stop of the Tab key, within which arrows move; Alt and Enter shows one line', async () => {
    const stops = (): string[] =>
      [...node.querySelectorAll<HTMLElement>('.jp-MegalensLegend button')]
        .filter(each => each.tabIndex === 0)
        .map(each => each.textContent ?? '');
    const press = (key: string, init = {}): unknown =>
      document.activeElement?.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, ...init }));
    expect(stops()).toEqual(['loss/a']);
    button('loss/a').focus();
    press('ArrowRight');
    expect(document.activeElement).toBe(button('loss/b'));
    expect(stops()).toEqual(['loss/b']);
    press('Enter', { altKey: true });
    await view.settled();
    expect(hidden()).toEqual(['loss/a', 'loss/c']);
    // The picture was drawn anew, and the focus is where it was.
    expect(document.activeElement).toBe(button('loss/b'));
  });
});

it('is hidden by the run where one line is drawn of several runs', async () => {
  const [one, two] = [new MemoryRun(), new MemoryRun(undefined, 'r2')];
  for (const run of [one, two]) {
    run.units = { loss: 'nats' };
    run.numbers.push({ step: 1, name: 'loss', value: 1 }, { step: 2, name: 'loss', value: 2 });
  }
  two.name = 'other';
  const options: ViewOptions = { view: 'scalars', runs: ['r2'], hidden: ['r2'] };
  const { loaded } = await loadModel(one, options, undefined, [one, two]);
  const content = 'content' in loaded ? loaded.content : null;
  expect(content?.recipe?.datasets['rows']?.map(row => row['name'])).toEqual(
    Array(2).fill('gpt-demo · loss')
  );
  expect(content?.caption).toContain('1 line is hidden: other.');
});

it('of many lines is a scale of colours between the names of its ends', async () => {
  const run = new MemoryRun();
  for (let layer = 0; layer < 40; layer += 1) {
    run.add({ step: 1, layer }, { step: 2, layer });
  }
  const { node } = await showView(run, { view: 'trend', flag: 'MLP1_mat_mul' });
  const legend = node.querySelector<HTMLElement>('.jp-MegalensLegend');
  expect(legend?.className).toContain('jp-mod-scale');
  expect([legend?.dataset['first'], legend?.dataset['last']]).toEqual(['layer 0', 'layer 39']);
  expect(legend?.querySelectorAll('.jp-MegalensLegend-entry')).toHaveLength(40);
});

import { grads } from '../../store/__tests__/memory-moments';
import type { IRecipe } from '../../charts';
import type { StatisticsOptions, ViewOptions } from '../../protocol/views.generated';
import { readView } from '../still';
import type { IViewHost } from '../view';
import { MomentsPage } from './moments-page';
import { MemoryRun } from '../../store/__tests__/memory-run';

let page: MomentsPage;
beforeEach(() => (page = new MomentsPage()));
afterEach(() => page.close());

describe('other kinds', () => {
  it('draws layers at one step, with a slider over the steps', async () => {
    page.run.log(...grads(4, 6));
    await page.show({ kind: 'layers', statistic: 'std', by: ['layer'] });
    expect(page.title()).toBe('Gradient standard deviation by layer, step 6');
    expect(page.caption()).toContain('Tensors outside the layers are left out.');
    page.change(page.control('steps', 'input'), '1');
    await page.view?.settled();
    expect(page.view?.options).toMatchObject({ step: 2 });
    expect(page.title()).toContain('step 2');
    page.press('ArrowRight');
    page.press('ArrowRight');
    expect(page.said()).toBe('layer 1, all tensors: 2.5');
    await page.view?.update({ marks: 'bars', by: ['layer', 'family'] } as Partial<ViewOptions>);
    expect(document.querySelectorAll('.jp-MegalensPlot .mark-rect path')).toHaveLength(8);
  });

  it('maps layers and item types over steps', async () => {
    page.run.log(...grads(4, 6, (step, layer) => (step === 3 && layer === 1 ? { nan: 1 } : {})));
    await page.show({ kind: 'layer_map', statistic: 'std' });
    expect(page.title()).toBe('Gradient standard deviation by layer, steps 1 to 6');
    expect(document.querySelectorAll('.jp-MegalensPlot image')).toHaveLength(1);
    page.press('Home');
    page.press('Home');
    page.press('ArrowDown');
    expect(page.said()).toBe('step 1, layer 1: 2.5');
    await page.view?.update({ kind: 'item_map' } as Partial<ViewOptions>);
    expect(page.title()).toContain('by item type');
    expect(document.querySelector('.jp-MegalensPlot')?.textContent).toContain('mlp.linear_fc1.weight');
  });

  it('draws the lines of cells that are chosen, one more with each, and takes them away', async () => {
    page.run.log(
      ...[0, 1].flatMap(rank => grads(3, 6).map(row => ({ ...row, rank }))).sort((a, b) => a.step - b.step)
    );
    await page.show({ kind: 'map', statistic: 'std', columns: 'rank' });
    const map = document.querySelector('.jp-MegalensPlot');
    const titles = (): string[] =>
      [...document.querySelectorAll('.jp-MegalensView-title')].map(each =>
        page.plain(each.textContent ?? '')
      );
    expect(titles()).toEqual(['Gradient standard deviation by layer and rank, step 6']);
    const chosen = async (...keys: string[]): Promise<string[] | undefined> => {
      keys.forEach(key => page.press(key));
      await page.view?.settled();
      return (page.view?.options as Partial<StatisticsOptions>).cells;
    };
    expect(await chosen('Home', 'Home', 'Enter')).toEqual(['[0,0]']);
    expect(await chosen('ArrowDown', 'ArrowRight', 'Enter')).toEqual(['[0,0]', '[1,1]']);
    expect(titles()[1]).toBe('Gradient standard deviation by layer and rank, steps 1 to 6');
    expect(page.lines()).toBe(2);
    // The map is the one that was there: its zoom and its cursor stay.
    expect(document.querySelector('.jp-MegalensPlot')).toBe(map);
    expect(await chosen('Enter')).toEqual(['[0,0]']);
    page.change(page.control('along', 'select'), 'step');
    await page.click('1 cell');
    expect(titles()).toHaveLength(1);
    await chosen('Enter');
    // What was chosen was a cell of another map.
    page.change(page.control('columns', 'select'), 'step');
    await page.view?.settled();
    expect(page.view?.options).toMatchObject({ columns: 'step', cells: [] });
  });

  it('offers each tensor as what a map of one is of', async () => {
    page.run.log(...grads(2, 3));
    await page.show({ kind: 'map', by: ['rank'], statistic: 'std' });
    await page.click('More');
    const [first] = document.querySelectorAll<HTMLOptionElement>('[data-control="name"] option');
    page.change(page.control('name', 'input'), first?.value ?? '');
    await page.view?.settled();
    expect(page.caption()).toBe('Of embedding.word_embeddings.weight only.');
  });

  it('shows total, largest moves and families together', async () => {
    page.run.log(...grads(2, 5, (step, layer) => ({ std: layer === 1 ? step : 1 })));
    await page.show({ kind: 'overview', statistic: 'std' });
    const titles = [...document.querySelectorAll('.jp-MegalensView-title')].map(each =>
      page.plain(each.textContent ?? '')
    );
    expect(titles).toEqual([
      'Gradient standard deviation of all tensors, steps 1 to 5',
      'Largest moves of gradient standard deviation between first and last step',
      'Gradient standard deviation by family, steps 1 to 5'
    ]);
    const [first] = document.querySelectorAll('.jp-MegalensTable tbody tr');
    expect(page.plain(first?.textContent ?? '')).toBe('decoder.layers.1.mlp.linear_fc1.weight154400');
    first?.querySelector('button')?.click();
    await page.view?.settled();
    expect(page.view?.options).toMatchObject({ kind: 'tensors' });
    expect(await page.view?.toSVG()).toContain('<svg');
  });

  it('changes from lines to the overview and back', async () => {
    page.run.log(...grads(2, 5));
    await page.show({ by: ['layer'] });
    const panes = (): number => document.querySelectorAll('.jp-MegalensMoments-pane').length;
    await page.view?.update({ kind: 'overview' } as Partial<ViewOptions>);
    expect(panes()).toBe(3);
    expect(page.title()).toBe('Gradient L2 of all tensors, steps 1 to 5');
    await page.view?.update({ kind: 'lines' } as Partial<ViewOptions>);
    expect(panes()).toBe(1);
    expect(page.title()).toBe('Gradient L2 by layer, steps 1 to 5');
  });

  it('lists groups in a table, a page at a time, in the order that is asked for', async () => {
    page.run.log(...grads(2, 60));
    await page.show({ kind: 'table', statistic: 'std', by: ['layer'] });
    expect(document.querySelectorAll('tbody tr')).toHaveLength(100);
    expect(page.text('.jp-MegalensTable-pager')).toContain('rows 1 to 100 of 180');
    page.button('gradient standard deviation').click();
    expect(page.text('tbody tr')).toMatch(/^1\d/);
    await expect(page.view?.toSVG()).rejects.toThrow('A table has no picture');
  });

  it('derives columns and filters rows of a table by what a person writes, and names the place of what it refuses', async () => {
    page.run.log(...grads(2, 60));
    await page.show({
      kind: 'table',
      statistic: 'std',
      by: ['layer'],
      derive: 'share = d.value / op.max(d.value)',
      filter: 'd.layer === 1 && d.step > 50'
    });
    expect(page.text('thead tr')).toMatch(/share$/);
    expect(document.querySelectorAll('tbody tr')).toHaveLength(10);
    page.button('share').click();
    expect(page.text('tbody tr td:last-child')).toBe('1');
    expect(page.caption()).not.toContain('left out here');
    await page.view?.update({ filter: 'd.layer === globalThis' } as Partial<ViewOptions>);
    expect(page.state()).toContain('The filter cannot have ‘globalThis’ at character 13');
    await page.click('Clear derived columns');
    expect(document.querySelectorAll('tbody tr')).toHaveLength(100);
  });

  it('offers the table as code for arquero beside the code for Python', async () => {
    page.run.log(...grads(2, 5));
    const copied = new Promise<string>(resolve =>
      Object.assign(navigator, { clipboard: { writeText: async (text: string) => resolve(text) } })
    );
    await page.show({ statistic: 'kurtosis', by: ['layer'] });
    document.querySelector<HTMLButtonElement>('[aria-label="More actions"]')?.click();
    await page.click('Copy as arquero');
    expect(await copied).toContain("import { aq, moments } from 'megalens/aggregate';");
    expect(await copied).toContain('value: moments.kurtosis()');
  });
});

it.each([
  ['step', [2, 4, 6], 'step'],
  ['tokens', [200, 400, 600], 'tokens'],
  ['time', [2, 4, 6], 'time since the start']
] as const)('lines and maps have one axis: aligned by %s', async (align, xs, title) => {
  const run = new MemoryRun();
  run.units = { tokens: '' };
  run.numbers = [0, 2, 4, 6].map(step => ({ step, name: 'tokens', value: 100 * step }));
  run.log(...grads(2, 6).filter(({ step }) => step % 2 === 0));
  const read = async (kind: 'layer_map' | 'lines'): Promise<IRecipe | null> =>
    (await readView(run, { view: 'statistics', kind, by: ['layer'], align }))[0]?.recipe ?? null;
  const [lines, map] = [await read('lines'), await read('layer_map')];
  expect([...new Set(lines?.datasets['rows']?.map(row => row['x']))]).toEqual(xs);
  const [picture] = map?.datasets['pictures'] ?? [];
  const half = (xs[1] - xs[0]) / 2;
  expect([picture?.['x'], picture?.['x2']]).toEqual([xs[0] - half, xs[2] + half]);
  for (const name of ['xTitle', 'xLabel']) {
    expect(map?.texts[name]).toBe(lines?.texts[name]);
  }
  expect(map?.texts['xTitle']).toBe(title);
});

describe('comparing runs', () => {
  const other = (factor: number): MemoryRun => {
    const made = new MemoryRun();
    made.name = 'gpt-wide';
    made.log(...grads(2, 5, (_, layer) => ({ std: factor * (layer + 1.5) })));
    return made;
  };
  const host = (given: MemoryRun, released: string[] = []): IViewHost => ({
    runs: {
      list: () => Promise.resolve([{ id: 'r2', name: 'gpt-wide' }]),
      acquire: id => Promise.resolve({ source: given, dispose: () => released.push(id) })
    }
  });

  it('draws another run over this one, or what it is over or minus it', async () => {
    page.run.log(...grads(2, 5));
    const released: string[] = [];
    await page.show({ statistic: 'std', by: ['layer'], runs: ['r2'] }, host(other(3), released));
    expect(page.lines()).toBe(6);
    expect(page.caption()).toContain('gpt-demo (this run): solid. gpt-wide: dashed.');
    await page.view?.update({ compare: 'ratio' } as Partial<ViewOptions>);
    expect(page.lines()).toBe(3);
    page.press('End');
    expect(page.said()).toMatch(/ratio of gradient standard deviation 3$/);
    await page.view?.update({ compare: 'difference' } as Partial<ViewOptions>);
    page.press('End');
    expect(page.said()).toMatch(/difference of gradient standard deviation 3$/);
    await page.view?.update({ runs: [] } as Partial<ViewOptions>);
    await Promise.resolve();
    expect(released).toEqual(['r2']);
  });

  it('marks where another run is not finite, however it is compared, and says in which one', async () => {
    page.run.log(...grads(2, 8));
    const made = other(3);
    const name = 'decoder.layers.1.mlp.linear_fc2.weight';
    const nan = (step: number): Parameters<MemoryRun['log']>[0] => ({
      step,
      name,
      nan: 3,
      samples: 16 * step
    });
    made.log(nan(6), nan(7), { step: 8, name, std: 1, samples: 128 }, nan(9));
    const marked = (): number =>
      document.querySelectorAll('.jp-MegalensPlot .mark-rect path[fill="#ff2bd6"]').length;
    await page.show({ statistic: 'std', by: ['layer'], runs: ['r2'] }, host(made));
    for (const compare of ['overlay', 'ratio', 'difference'] as const) {
      await page.view?.update({ compare } as Partial<ViewOptions>);
      expect(page.caption()).toContain(
        'Values of gpt-wide that are not finite at 3 steps, marked along the top'
      );
      // Neighbours among its own steps are one stretch.
      expect(marked()).toBe(2);
    }
    await page.view?.update({ runs: [] } as Partial<ViewOptions>);
    expect(marked()).toBe(0);
  });

  const legend = (): (string | null)[] =>
    [...document.querySelectorAll('.jp-MegalensLegend-entry')].map(each => each.textContent);

  it('draws the layers of several runs over one another, each at its step that lies nearest', async () => {
    page.run.log(...grads(2, 8));
    const layers = { kind: 'layers', statistic: 'std', by: ['layer'], runs: ['r2'] } as const;
    await page.show({ ...layers, by: ['layer'], runs: ['r2'] }, host(other(3)));
    expect(page.title()).toBe('Gradient standard deviation by layer, step 8');
    expect(page.lines()).toBe(2);
    expect(legend()).toEqual(['gpt-demo', 'gpt-wide']);
    expect(page.caption()).toContain(
      'gpt-demo (this run): solid. gpt-wide: dashed. gpt-wide is at step 5, the nearest one.'
    );
    page.press('End');
    page.press('End');
    page.press('ArrowDown');
    expect(page.said()).toBe('layer 1, gpt-wide: 7.5');
    await page.view?.update({ step: 4 } as Partial<ViewOptions>);
    expect(page.caption()).not.toContain('the nearest one');
    await page.view?.update({ marks: 'bars', by: ['layer', 'family'] } as Partial<ViewOptions>);
    expect(legend().map(each => each?.slice(0, 12))).toEqual([
      'gpt-demo · m',
      'gpt-demo · s',
      'gpt-wide · m',
      'gpt-wide · s'
    ]);
    const bars = [...document.querySelectorAll('.jp-MegalensPlot .mark-rect path')];
    expect(new Set(bars.map(each => each.getAttribute('fill'))).size).toBe(4);
  });

  it('divides and subtracts layers, where both runs have them', async () => {
    page.run.log(...grads(3, 5));
    const made = other(3);
    made.log({ step: 5, name: 'decoder.layers.7.mlp.linear_fc1.weight', samples: 80, nan: 2 });
    await page.show({ kind: 'layers', statistic: 'std', runs: ['r2'], compare: 'ratio' }, host(made));
    expect(page.title()).toBe('Ratio, gpt-wide over this run: Gradient standard deviation by layer, step 5');
    expect(page.caption()).toContain('gpt-wide over this run.');
    expect(page.lines()).toBe(1);
    page.press('End');
    page.press('End');
    expect(page.said()).toBe('layer 1, gpt-wide: 3');
    await page.view?.update({ compare: 'difference' } as Partial<ViewOptions>);
    expect(page.title()).toContain('Difference, gpt-wide minus this run');
    page.press('Home');
    expect(page.said()).toBe('layer 0, gpt-wide: 3');
  });

  it('takes the step of another run by its samples where these are asked for', async () => {
    page.run.log(...grads(1, 8));
    const made = new MemoryRun();
    made.name = 'gpt-slow';
    made.log(...grads(1, 8, step => ({ samples: 8 * step, std: step })));
    await page.show({ kind: 'layers', statistic: 'std', step: 3, runs: ['r2'], x: 'samples' }, host(made));
    expect(page.caption()).toContain('gpt-slow is at step 6, the nearest one.');
    await page.view?.update({ x: 'step' } as Partial<ViewOptions>);
    expect(page.caption()).not.toContain('the nearest one');
  });

  it('says which one it shows where it shows one run', async () => {
    page.run.log(...grads(2, 5));
    await page.show({ kind: 'layer_map', runs: ['r2'] }, host(other(3)));
    expect(page.caption()).toContain('This map shows gpt-demo only');
    await page.view?.update({ kind: 'table' } as Partial<ViewOptions>);
    expect(page.caption()).toContain('This table shows gpt-demo only.');
  });

  it('aligns on samples, between the steps where they do not meet', async () => {
    page.run.log(...grads(0, 5, step => ({ std: step, samples: 10 * step })));
    const made = new MemoryRun();
    made.log(...grads(0, 4, step => ({ std: 1, samples: 10 * step + 5 })));
    await page.show(
      { statistic: 'std', by: [], runs: ['r2'], compare: 'difference', x: 'samples' },
      host(made)
    );
    page.press('Home');
    page.press('Home');
    expect(page.said()).toMatch(/-0\.5$/);
    expect(page.caption()).toContain('what lies between its neighbours is taken: 4 times');
  });

  it('offers the other runs in the filters, which fold', async () => {
    page.run.log(...grads(2, 5));
    await page.show({ by: ['layer'] }, host(other(2)));
    expect(page.control('runs', 'select')).toBeNull();
    document.querySelector<HTMLButtonElement>('[data-control="more"]')?.click();
    page.change(page.control('runs', 'select'), 'r2');
    await page.view?.settled();
    expect(page.view?.options).toMatchObject({ runs: ['r2'] });
    page.change(page.control('where-family', 'select'), 'mlp');
    await page.view?.settled();
    expect(page.view?.options).toMatchObject({ where: { family: ['mlp'] } });
    expect(document.querySelector('[data-control="more"]')?.textContent).toBe('More (2) ▴');
  });
});

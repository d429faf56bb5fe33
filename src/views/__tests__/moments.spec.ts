import type { MomentsOptions, ViewOptions } from '../../protocol/views.generated';
import { ClientError } from '../../client';
import { StoreError } from '../../store';
import { mountView } from '../registry';
import type { IView, IViewHost } from '../view';
import { tensorNames, type IMomentRow, type MemoryMoments } from './memory-moments';
import { HELLO, MemoryRun } from './run';

// The first test also loads and transforms Vega.
jest.setTimeout(30_000);

let run: MemoryRun;
let view: IView | null = null;

beforeEach(() => {
  run = new MemoryRun();
});

afterEach(() => {
  view?.dispose();
  view = null;
  document.body.replaceChildren();
});

async function show(options: Omit<MomentsOptions, 'view'> = {}, host: IViewHost = {}): Promise<IView> {
  const node = document.createElement('div');
  document.body.append(node);
  view = await mountView(node, run, { view: 'moments', ...options }, { renderer: 'svg', ...host });
  await view.settled();
  return view;
}

const plain = (text: string): string => text.replace(/\u2009/g, ' ').replace(/\u2212/g, '-');
const text = (selector: string): string => plain(document.querySelector(selector)?.textContent ?? '');
const title = (): string => text('.jp-MegalensView-title');
const caption = (): string => text('.jp-MegalensView-caption');
const state = (): string => text('.jp-MegalensState');
const control = <T extends HTMLElement>(id: string, tag: string): T =>
  document.querySelector<T>(`[data-control="${id}"] ${tag}`) as T;
const change = (input: HTMLInputElement | HTMLSelectElement, value: string): void => {
  input.value = value;
  input.dispatchEvent(new Event(input.type === 'range' ? 'input' : 'change'));
};
const button = (label: string): HTMLButtonElement =>
  [...document.querySelectorAll('button')].find(each =>
    each.textContent?.startsWith(label)
  ) as HTMLButtonElement;
/** Press a button; what it does begins with the next turn. */
async function click(label: string): Promise<void> {
  button(label).click();
  await Promise.resolve();
  await Promise.resolve();
  await view?.settled();
}
const press = (key: string, init = {}): void => {
  document
    .querySelector('.jp-MegalensStage')
    ?.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, ...init }));
};
const lines = (): number => document.querySelectorAll('.jp-MegalensPlot .mark-line path').length;

/** Gradients of a transformer of some layers at steps 1 to `steps`; the deviation is the layer's number and one more. */
function grads(
  layers: number,
  steps: number,
  of: (step: number, layer: number) => Partial<IMomentRow> = () => ({})
): IMomentRow[] {
  return Array.from({ length: steps }, (_, at) => at + 1).flatMap(step =>
    tensorNames(layers).map(name => {
      const layer = Number(/layers\.(\d+)/.exec(name)?.[1] ?? -1);
      return { step, name, samples: 16 * step, std: layer + 1.5, ...of(step, layer) };
    })
  );
}

describe('lines', () => {
  it('draws one line a group and says what they are', async () => {
    run.log(...grads(3, 5));
    await show({ statistic: 'rms', by: ['layer'] });
    expect(title()).toBe('Gradient RMS by layer, steps 1 to 5');
    expect(lines()).toBe(4);
    expect(document.querySelector('.jp-MegalensPlot')?.textContent).toContain('layer 2');
    expect(view?.summary()).toContain('Gradient RMS stayed the same');
  });

  it('names each line in the legend by its own colour', async () => {
    run.log(...grads(12, 3));
    await show({ by: ['layer'] });
    const strokes = (selector: string): (string | null)[] =>
      [...document.querySelectorAll(selector)].map(each => each.getAttribute('stroke'));
    const drawn = strokes('.jp-MegalensPlot .mark-line path');
    expect(strokes('.role-legend-symbol path')).toEqual(drawn);
    expect(new Set(drawn).size).toBe(13);
    const labels = [...document.querySelectorAll('.role-legend-label text')].map(each => each.textContent);
    expect(labels.slice(0, 3)).toEqual(['layer 0', 'layer 1', 'layer 2']);
    expect(labels[12]).toBe('no layer');
  });

  it('follows what is logged, and reads nothing anew for a look', async () => {
    run.log(...grads(2, 2));
    await show({ by: [] });
    const asked = run.moments?.asked;
    await view?.update({ transform: 'log' } as Partial<ViewOptions>);
    expect(run.moments?.asked).toBe(asked);
    run.log({ step: 3, name: 'decoder.layers.0.mlp.linear_fc1.weight', samples: 48 });
    await view?.settled();
    expect(title()).toBe('Gradient L2 of all tensors, steps 1 to 3');
  });

  it('says in words how the statistic moved, and where', async () => {
    run.log(...grads(4, 30, (step, layer) => ({ kurtosis: layer === 2 && step > 12 ? 9.8 : 3.1 })));
    await show({ statistic: 'kurtosis', by: ['layer'] });
    expect(plain(view?.summary() ?? '')).toBe(
      'Gradient kurtosis rose from 3.1 to 9.8 between step 12 and 13 in layer 2.'
    );
  });

  it('draws the largest series only and says how many there are', async () => {
    run.log(...grads(30, 2));
    await show({ by: ['layer'], series: 5, statistic: 'rms' });
    expect(lines()).toBe(5);
    expect(caption()).toContain('5 of 31 series are drawn: those with the largest values.');
  });

  it('decimates long lines, keeps a spike of one step, and says so', async () => {
    run.log(...grads(0, 9000, step => ({ std: step === 4567 ? 900 : 1 })));
    await show({ by: [], statistic: 'std' });
    expect(caption()).toMatch(/^[12] \d\d\d of 9 000 steps are drawn; every minimum and maximum is kept\./);
    expect(plain(view?.summary() ?? '')).toMatch(
      /rose from 1 to 900 between step 4 5\d\d and 4 567 in all tensors/
    );
  });

  it('leaves a gap where there is no data, never zero', async () => {
    run.log(...grads(0, 5, step => (step === 3 ? { count: 0, mean: NaN } : { std: 2 })));
    await show({ by: [], statistic: 'std' });
    press('End');
    press('ArrowLeft');
    press('ArrowLeft');
    expect(text('[aria-live]')).toContain('step 3, all tensors: gradient standard deviation no data');
  });

  it('marks values that are not finite, names the first step and tensor, and goes there', async () => {
    const bad = 'decoder.layers.1.mlp.linear_fc2.weight';
    run.log(
      ...grads(2, 6),
      { step: 7, name: bad, nan: 12, samples: 112 },
      { step: 8, name: bad, nan: 40, samples: 128 }
    );
    await show({ by: ['layer'] });
    expect(text('.jp-MegalensNote')).toContain(
      'First non-finite gradients: step 7, decoder.layers.1.mlp.linear_fc2.weight (12).'
    );
    expect(caption()).toContain('Values that are not finite at 2 steps, marked along the top');
    expect(document.querySelectorAll('.jp-MegalensPlot .mark-rect path[fill="#ff2bd6"]')).toHaveLength(1);
    await click('Go there');
    expect(view?.options).toMatchObject({ kind: 'tensors', step: 7, steps: [1, 57] });
    expect(title()).toBe('Gradient L2 by tensor, steps 1 to 8');
    expect(lines()).toBe(1);
    // There is room for steps that still come; a run that has ended needs none.
    run.log({ step: 9, name: bad, nan: 40, samples: 144 });
    await view?.settled();
    expect(title()).toBe('Gradient L2 by tensor, steps 1 to 9');
    run.connect({ kind: 'recorded' });
    await view?.settled();
    await click('Go there');
    expect(view?.options).toMatchObject({ steps: [1, 9] });
  });

  it('shows values against the first one, and a trailing mean over the numbers', async () => {
    run.log(...grads(0, 10, step => ({ std: step })));
    await show({ by: [], statistic: 'std', show: 'relative', smoothing: 3 });
    press('End');
    expect(text('[aria-live]')).toContain('times its first value 9');
    expect(caption()).toContain('Trailing mean of 3 points; the numbers themselves are faint.');
    expect(lines()).toBe(2);
  });

  it('draws over samples, and says so where they are not known', async () => {
    run.log(...grads(0, 4));
    await show({ by: [], x: 'samples' });
    press('End');
    expect(document.querySelector('.jp-MegalensPlot')?.textContent).toContain('samples');
    run.log({ step: 5, name: 'a.weight' });
    await view?.settled();
    expect(state()).toContain('does not say how many samples');
    await click('Show steps');
    expect(view?.options).toMatchObject({ x: 'step' });
  });

  it('says how far a number made of raw sums may be off, and that a loss scale may be in it', async () => {
    run.log(...grads(0, 3, () => ({ mean: 100, rounding: 2 ** -24, lossScale: NaN })));
    await show({ by: [], statistic: 'kurtosis' });
    expect(caption()).toMatch(/Made of raw sums in single precision: at worst the kurtosis is known to ± \d/);
    expect(caption()).toContain('may hold a loss scale that nobody recorded');
  });
});

describe('what a total would count twice', () => {
  const sites = (steps: number): IMomentRow[] =>
    Array.from({ length: steps }, (_, at) =>
      tensorNames(2, true).map(name => ({
        step: at + 1,
        name,
        stat: 'activation' as const,
        std: name.endsWith('output0') ? 4 : 2
      }))
    ).flat();

  it('is refused until a role is chosen or mixing is allowed', async () => {
    run.log(...sites(2));
    await show({ stat: 'activation', statistic: 'std', by: ['layer'] });
    expect(state()).toContain('would hold both inputs and outputs');
    await click('Outputs only');
    expect(view?.options).toMatchObject({ where: { role: ['output'] } });
    press('End');
    expect(text('[aria-live]')).toContain('standard deviation 4');
    await view?.update({ where: {} } as Partial<ViewOptions>);
    await click('Mix them');
    expect(caption()).toContain('Inputs and outputs of modules are mixed');
  });

  it('is no question for the gain of a module', async () => {
    run.log(...sites(2));
    await show({ stat: 'activation', statistic: 'rms', by: ['layer'], ratio: 'gain' });
    expect(title()).toBe('Gain of RMS (output over input) by layer, steps 1 to 2');
    press('End');
    expect(text('[aria-live]')).toContain(' 2');
  });
});

describe('other kinds', () => {
  it('draws layers at one step, with a slider over the steps', async () => {
    run.log(...grads(4, 6));
    await show({ kind: 'layers', statistic: 'std', by: ['layer'] });
    expect(title()).toBe('Gradient standard deviation by layer, step 6');
    expect(caption()).toContain('Tensors outside of the layers are left out.');
    change(control('steps', 'input'), '1');
    await view?.settled();
    expect(view?.options).toMatchObject({ step: 2 });
    expect(title()).toContain('step 2');
    press('ArrowRight');
    press('ArrowRight');
    expect(text('[aria-live]')).toBe('layer 1, all tensors: 2.5');
    await view?.update({ marks: 'bars', by: ['layer', 'family'] } as Partial<ViewOptions>);
    expect(document.querySelectorAll('.jp-MegalensPlot .mark-rect path')).toHaveLength(8);
  });

  it('maps layers and item types over steps', async () => {
    run.log(...grads(4, 6, (step, layer) => (step === 3 && layer === 1 ? { nan: 1 } : {})));
    await show({ kind: 'layer_map', statistic: 'std' });
    expect(title()).toBe('Gradient standard deviation by layer, steps 1 to 6');
    expect(document.querySelectorAll('.jp-MegalensPlot image')).toHaveLength(1);
    press('Home');
    press('Home');
    press('ArrowDown');
    expect(text('[aria-live]')).toBe('step 1, layer 1: 2.5');
    await view?.update({ kind: 'item_map' } as Partial<ViewOptions>);
    expect(title()).toContain('by item type');
    expect(document.querySelector('.jp-MegalensPlot')?.textContent).toContain('mlp.linear_fc1.weight');
  });

  it('shows total, largest moves and families together', async () => {
    run.log(...grads(2, 5, (step, layer) => ({ std: layer === 1 ? step : 1 })));
    await show({ kind: 'overview', statistic: 'std' });
    const titles = [...document.querySelectorAll('.jp-MegalensView-title')].map(each =>
      plain(each.textContent ?? '')
    );
    expect(titles).toEqual([
      'Gradient standard deviation of all tensors, steps 1 to 5',
      'Largest moves of gradient standard deviation between first and last step',
      'Gradient standard deviation by family, steps 1 to 5'
    ]);
    const [first] = document.querySelectorAll('.jp-MegalensTable tbody tr');
    expect(plain(first?.textContent ?? '')).toBe('decoder.layers.1.mlp.linear_fc1.weight154400');
    first?.querySelector('button')?.click();
    await view?.settled();
    expect(view?.options).toMatchObject({ kind: 'tensors' });
    expect(await view?.toSVG()).toContain('<svg');
  });

  it('lists groups in a table, a page at a time, in the order that is asked for', async () => {
    run.log(...grads(2, 60));
    await show({ kind: 'table', statistic: 'std', by: ['layer'] });
    expect(document.querySelectorAll('tbody tr')).toHaveLength(100);
    expect(text('.jp-MegalensTable-pager')).toContain('rows 1 to 100 of 180');
    button('gradient standard deviation').click();
    expect(text('tbody tr')).toMatch(/^1\d/);
    await expect(view?.toSVG()).rejects.toThrow('A table has no picture');
  });
});

describe('comparing runs', () => {
  const other = (factor: number): MemoryRun => {
    const made = new MemoryRun();
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
    run.log(...grads(2, 5));
    const released: string[] = [];
    await show({ statistic: 'std', by: ['layer'], runs: ['r2'] }, host(other(3), released));
    expect(lines()).toBe(6);
    expect(caption()).toContain('gpt-demo (this run): solid. gpt-demo: dashed.');
    await view?.update({ compare: 'ratio' } as Partial<ViewOptions>);
    expect(lines()).toBe(3);
    press('End');
    expect(text('[aria-live]')).toMatch(/ratio of gradient standard deviation 3$/);
    await view?.update({ compare: 'difference' } as Partial<ViewOptions>);
    press('End');
    expect(text('[aria-live]')).toMatch(/difference of gradient standard deviation 3$/);
    await view?.update({ runs: [] } as Partial<ViewOptions>);
    await Promise.resolve();
    expect(released).toEqual(['r2']);
  });

  it('aligns on samples, between the steps where they do not meet', async () => {
    run.log(...grads(0, 5, step => ({ std: step, samples: 10 * step })));
    const made = new MemoryRun();
    made.log(...grads(0, 4, step => ({ std: 1, samples: 10 * step + 5 })));
    await show({ statistic: 'std', by: [], runs: ['r2'], compare: 'difference', x: 'samples' }, host(made));
    press('Home');
    press('Home');
    expect(text('[aria-live]')).toMatch(/-0\.5$/);
    expect(caption()).toContain('what lies between its neighbours is taken: 4 times');
  });

  it('offers the other runs in the filters, which fold', async () => {
    run.log(...grads(2, 5));
    await show({ by: ['layer'] }, host(other(2)));
    expect(control('runs', 'select')).toBeNull();
    document.querySelector<HTMLButtonElement>('[data-control="more"]')?.click();
    change(control('runs', 'select'), 'r2');
    await view?.settled();
    expect(view?.options).toMatchObject({ runs: ['r2'] });
    change(control('where-family', 'select'), 'mlp');
    await view?.settled();
    expect(view?.options).toMatchObject({ where: { family: ['mlp'] } });
    expect(document.querySelector('[data-control="more"]')?.textContent).toBe('More (2) ▴');
  });
});

describe('states', () => {
  it('gives the two lines that log statistics where nothing does', async () => {
    await show();
    expect(state()).toContain('This training logs no statistics.');
    expect(text('.jp-MegalensState pre')).toBe(
      'statistics = megalens.log_statistics(model, optimizer, param=1, grad=1)\n' +
        'with statistics.step():  # around every training step'
    );
  });

  it('says the interval where the first logged step has not come', async () => {
    run.hello = { ...HELLO, statistics: { grad: 10 } };
    await show();
    expect(state()).toContain(
      'Gradients are logged every 10 steps; the first of these has not been reached yet.'
    );
    run.log(...grads(0, 1));
    await view?.settled();
    expect(title()).toContain('Gradient L2');
  });

  it('offers what is logged in place of what is not', async () => {
    run.log({ step: 1, name: 'a.weight', stat: 'param' });
    await show({ stat: 'grad' });
    expect(state()).toContain('Gradients were not logged in this run; there are parameters.');
    await click('Show parameters');
    expect(title()).toBe('Parameter L2 by layer, step 1');
  });

  it('says that a filter leaves nothing, and that a pattern cannot be read', async () => {
    run.log(...grads(1, 2));
    await show({ where: { name: 'nothing' } });
    expect(state()).toContain('No tensor of this run matches the filter.');
    await click('Clear filter');
    expect(title()).toContain('Gradient L2');
    await view?.update({ where: { name: '(' } } as Partial<ViewOptions>);
    expect(document.querySelector('.jp-MegalensState')?.getAttribute('data-kind')).toBe('error');
    expect(button('Clear filter')).toBeDefined();
  });

  it('takes the server’s refusals as its own, and says how far it is in reading files', async () => {
    run.log(...grads(1, 2));
    const refused = new ClientError('refused', 'The total would count twice.', {
      status: 400,
      serverCode: 'mixed'
    });
    const moments = run.moments as MemoryMoments;
    const index = moments.index.bind(moments);
    let go: () => void = () => undefined;
    moments.index = async (_signal, told) => {
      if (told) {
        told(250_000_000, 1_000_000_000);
        await new Promise<void>(resolve => (go = resolve));
      }
      return index();
    };
    moments.rows = () => Promise.resolve(null);
    moments.groups = () => Promise.reject(new StoreError('unavailable', refused.message, { cause: refused }));
    const shown = show({ by: [] });
    await new Promise<void>(resolve => {
      new MutationObserver(() => state().includes('Reading the files') && resolve()).observe(document.body, {
        subtree: true,
        childList: true
      });
    });
    expect(state()).toContain('Reading the files of gpt-demo: 250 MB of 1 GB…');
    go();
    await shown;
    expect(state()).toContain('The total would count twice.');
    expect(button('Outputs only')).toBeDefined();
  });

  it('repeats what is unusual about a run', async () => {
    run.moments?.warnings.push('Rows of steps 40 to 60 were superseded by a restart.');
    run.log(...grads(0, 2));
    await show({ by: [] });
    expect(caption()).toContain('Rows of steps 40 to 60 were superseded by a restart.');
  });
});

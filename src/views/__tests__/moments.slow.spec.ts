import type { ViewOptions } from '../../protocol/views.generated';
import { ClientError } from '../../client';
import { StoreError } from '../../store';
import { PRE_STEP } from '../../store/row-moments';
import {
  grads,
  tensorNames,
  type IMomentRow,
  type MemoryMoments
} from '../../store/__tests__/memory-moments';
import { MomentsPage } from './moments-page';
import { HELLO } from '../../store/__tests__/memory-run';

let page: MomentsPage;
beforeEach(() => (page = new MomentsPage()));
afterEach(() => page.close());

describe('lines', () => {
  it('draws one line a group and says what they are', async () => {
    page.run.log(...grads(3, 5));
    await page.show({ statistic: 'rms', by: ['layer'] });
    expect(page.title()).toBe('Gradient RMS by layer, steps 1 to 5');
    expect(page.lines()).toBe(4);
    expect(document.querySelector('.jp-MegalensLegend')?.textContent).toContain('layer 2');
    expect(page.view?.summary()).toContain('Gradient RMS stayed about the same from step 1 to 5 in 4 series');
  });

  it('names each line in the legend by its own colour', async () => {
    page.run.log(...grads(12, 3));
    await page.show({ by: ['layer'] });
    const drawn = [...document.querySelectorAll('.jp-MegalensPlot .mark-line path')].map(each =>
      each.getAttribute('stroke')
    );
    const entries = [...document.querySelectorAll('.jp-MegalensLegend-entry')];
    const shade = document.createElement('i').style;
    const colors = drawn.map(color => Object.assign(shade, { background: color }).background);
    const swatches = entries.map(each => each.querySelector<HTMLElement>('span')?.style.background);
    expect(swatches).toEqual(colors);
    expect(new Set(drawn).size).toBe(13);
    const labels = entries.map(each => each.textContent);
    expect(labels.slice(0, 3)).toEqual(['layer 0', 'layer 1', 'layer 2']);
    expect(labels[12]).toBe('tensors of no layer');
  });

  it('follows what is logged, and reads nothing anew for a look', async () => {
    page.run.log(...grads(2, 2));
    await page.show({ by: [] });
    const asked = page.run.moments?.asked;
    await page.view?.update({ transform: 'log' } as Partial<ViewOptions>);
    expect(page.run.moments?.asked).toBe(asked);
    page.run.log({ step: 3, name: 'decoder.layers.0.mlp.linear_fc1.weight', samples: 48 });
    await page.view?.settled();
    expect(page.title()).toBe('Gradient L2 of all tensors, steps 1 to 3');
  });

  it('says in words how the statistic moved, and where', async () => {
    page.run.log(...grads(4, 30, (step, layer) => ({ kurtosis: layer === 2 && step > 12 ? 9.8 : 3.1 })));
    await page.show({ statistic: 'kurtosis', by: ['layer'] });
    expect(page.plain(page.view?.summary() ?? '')).toBe(
      'Gradient kurtosis rose from 3.1 to 9.8 between step 12 and 13 in layer 2.'
    );
  });

  it('draws the largest series only and says how many there are', async () => {
    page.run.log(...grads(30, 2));
    await page.show({ by: ['layer'], series: 5, statistic: 'rms' });
    expect(page.lines()).toBe(5);
    expect(page.caption()).toContain('5 of 31 series are drawn: those with the largest values.');
  });

  it('decimates long lines, keeps a spike of one step, and says so', async () => {
    page.run.log(...grads(0, 9000, step => ({ std: step === 4567 ? 900 : 1 })));
    await page.show({ by: [], statistic: 'std' });
    expect(page.caption()).toMatch(
      /^[12] \d\d\d of 9 000 steps are drawn; every minimum and maximum is kept\./
    );
    expect(page.plain(page.view?.summary() ?? '')).toMatch(
      /rose from 1 to 900 between step 4 5\d\d and 4 567 in all tensors/
    );
  });

  it('leaves a gap where there is no data, never zero', async () => {
    page.run.log(...grads(0, 5, step => (step === 3 ? { count: 0, mean: NaN } : { std: 2 })));
    await page.show({ by: [], statistic: 'std' });
    page.press('End');
    page.press('ArrowLeft');
    page.press('ArrowLeft');
    expect(page.said()).toContain('step 3, all tensors: gradient standard deviation no data');
  });

  it('marks values that are not finite, names the first step and tensor, and goes there', async () => {
    const bad = 'decoder.layers.1.mlp.linear_fc2.weight';
    page.run.log(
      ...grads(2, 6),
      { step: 7, name: bad, nan: 12, samples: 112 },
      { step: 8, name: bad, nan: 40, samples: 128 }
    );
    await page.show({ by: ['layer'] });
    expect(page.text('.jp-MegalensNote')).toContain(
      'First non-finite gradients: step 7, decoder.layers.1.mlp.linear_fc2.weight (12).'
    );
    expect(page.caption()).toContain('Values that are not finite at 2 steps, marked along the top');
    expect(document.querySelectorAll('.jp-MegalensPlot .mark-rect path[fill="#ff2bd6"]')).toHaveLength(1);
    await page.click('Go there');
    expect(page.view?.options).toMatchObject({ kind: 'tensors', step: 7, steps: [1, 57] });
    expect(page.title()).toBe('Gradient L2 by tensor, steps 1 to 8');
    expect(page.lines()).toBe(1);
    // There is room for steps that still come; a run that has ended needs none.
    page.run.log({ step: 9, name: bad, nan: 40, samples: 144 });
    await page.view?.settled();
    expect(page.title()).toBe('Gradient L2 by tensor, steps 1 to 9');
    page.run.connect({ kind: 'recorded' });
    await page.view?.settled();
    await page.click('Go there');
    expect(page.view?.options).toMatchObject({ steps: [1, 9] });
  });

  it('shows values against the first one, and a trailing mean over the numbers', async () => {
    page.run.log(...grads(0, 10, step => ({ std: step })));
    await page.show({ by: [], statistic: 'std', show: 'relative', smoothing: 3 });
    page.press('End');
    expect(page.said()).toContain('times its first value 10 (mean of 3: 9)');
    expect(page.caption()).toContain('Trailing mean of 3 points; the numbers themselves are faint.');
    expect(page.lines()).toBe(2);
  });

  it('draws over samples, and says so where they are not known', async () => {
    page.run.log(...grads(0, 4));
    await page.show({ by: [], x: 'samples' });
    page.press('End');
    expect(document.querySelector('.jp-MegalensPlot')?.textContent).toContain('samples');
    page.run.log({ step: 5, name: 'a.weight' });
    await page.view?.settled();
    expect(page.state()).toContain('does not say how many samples');
    await page.click('Show steps');
    expect(page.view?.options).toMatchObject({ x: 'step' });
  });

  it('says how far a number made of raw sums may be off, and that a loss scale may be in it', async () => {
    page.run.log(...grads(0, 3, () => ({ mean: 100, rounding: 2 ** -24, lossScale: NaN })));
    await page.show({ by: [], statistic: 'kurtosis' });
    expect(page.caption()).toMatch(
      /Made of raw sums in single precision: at worst the kurtosis is known to ± \d/
    );
    expect(page.caption()).toContain('may hold a loss scale that nobody recorded');
    expect(page.caption()).not.toContain('clipping');
  });

  it('says that clipping may be in gradients that the optimizer took', async () => {
    page.run.log(...grads(0, 3, at => ({ mean: 100, gradientStage: at === 1 ? PRE_STEP : 1 })));
    await page.show({ by: [] });
    expect(page.caption()).toContain('measured as the optimizer took them: clipping may be in them');
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
    page.run.log(...sites(2));
    await page.show({ stat: 'activation', statistic: 'std', by: ['layer'] });
    expect(page.state()).toContain('would hold both inputs and outputs');
    await page.click('Outputs only');
    expect(page.view?.options).toMatchObject({ where: { role: ['output'] } });
    page.press('End');
    expect(page.said()).toContain('standard deviation 4');
    await page.view?.update({ where: {} } as Partial<ViewOptions>);
    await page.click('Mix them');
    expect(page.caption()).toContain('Inputs and outputs of modules are mixed');
  });

  it('is no question for the gain of a module', async () => {
    page.run.log(...sites(2));
    await page.show({ stat: 'activation', statistic: 'rms', by: ['layer'], ratio: 'gain' });
    expect(page.title()).toBe('Gain of RMS (output over input) by layer, steps 1 to 2');
    page.press('End');
    expect(page.said()).toContain(' 2');
  });
});

describe('states', () => {
  it('gives the two lines that log statistics where nothing does', async () => {
    await page.show();
    expect(page.state()).toContain('This training logs no statistics.');
    expect(page.text('.jp-MegalensState pre')).toBe(
      'statistics = megalens.log_statistics(model, optimizer, param=1, grad=1)\n' +
        'with statistics.step():  # around every training step'
    );
  });

  it('says the interval where the first logged step has not come', async () => {
    page.run.hello = { ...HELLO, statistics: { grad: 10 } };
    await page.show();
    expect(page.state()).toContain(
      'Gradients are logged every 10 steps; the first of these has not been reached yet.'
    );
    page.run.log(...grads(0, 1));
    await page.view?.settled();
    expect(page.title()).toContain('Gradient L2');
  });

  it('offers what is logged in place of what is not', async () => {
    page.run.log({ step: 1, name: 'a.weight', stat: 'param' });
    await page.show({ stat: 'grad' });
    expect(page.state()).toContain('Gradients were not logged in this run; there are parameters.');
    await page.click('Show parameters');
    expect(page.title()).toBe('Parameter L2 by layer, step 1');
  });

  it('says that a filter leaves nothing, and that a pattern cannot be read', async () => {
    page.run.log(...grads(1, 2));
    await page.show({ where: { name: 'nothing' } });
    expect(page.state()).toContain('No tensor of this run matches the filter.');
    await page.click('Clear filter');
    expect(page.title()).toContain('Gradient L2');
    await page.view?.update({ where: { name: '(' } } as Partial<ViewOptions>);
    expect(document.querySelector('.jp-MegalensState')?.getAttribute('data-kind')).toBe('error');
    expect(page.button('Clear filter')).toBeDefined();
  });

  it('takes the server’s refusals as its own, and says how far it is in reading files', async () => {
    page.run.log(...grads(1, 2));
    const refused = new ClientError('refused', 'The total would count twice.', {
      status: 400,
      serverCode: 'mixed'
    });
    const moments = page.run.moments as MemoryMoments;
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
    const shown = page.show({ by: [] });
    await new Promise<void>(resolve => {
      new MutationObserver(() => page.state().includes('Reading the files') && resolve()).observe(
        document.body,
        {
          subtree: true,
          childList: true
        }
      );
    });
    expect(page.state()).toContain('Reading the files of gpt-demo: 250 MB of 1 GB…');
    go();
    await shown;
    expect(page.state()).toContain('The total would count twice.');
    expect(page.button('Outputs only')).toBeDefined();
  });

  it('repeats what is unusual about a run', async () => {
    page.run.moments?.warnings.push('Rows of steps 40 to 60 were superseded by a restart.');
    page.run.log(...grads(0, 2));
    await page.show({ by: [] });
    expect(page.caption()).toContain('Rows of steps 40 to 60 were superseded by a restart.');
  });
});

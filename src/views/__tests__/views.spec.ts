import { Chart } from '../../charts';
import { fewScalars } from '../../report/page-data';
import type { ViewOptions } from '../../protocol/views.generated';
import type { IView } from '../view';
import { HELLO, MemoryRun } from '../../store/__tests__/memory-run';
import { caption, control, key, put, showView, state, text, title } from './page';

let run: MemoryRun;
let view: IView;

beforeEach(() => {
  run = new MemoryRun();
});

async function show(options: ViewOptions, host = {}): Promise<IView> {
  view = await showView(run, options, host);
  return view;
}

describe('heatmap', () => {
  const HEATMAP: ViewOptions = { view: 'heatmap', flag: 'MLP1_mat_mul', layers: 'all' };

  it('draws one picture for each layer and says what it is', async () => {
    run.add({ layer: 1, step: 1240 }, { layer: 2, step: 1240 });
    await show(HEATMAP);
    expect(document.querySelectorAll('.jp-MegalensPlot image')).toHaveLength(2);
    expect(title()).toBe('MLP1 output, mean of 2 tiles, layers 1 and 2, step 1 240');
    expect(caption()).toContain('Sample 0 of 16, counted from 0.');
    expect(view.summary().replace(/\u202f/g, ' ')).toBe(
      'At step 1 240 values run from 100 to 221. The largest magnitude, 221, is in layer 2 at position 2, tile 1.'
    );
  });

  it('follows the newest step by patching the drawn chart', async () => {
    const mounted = jest.spyOn(Chart, 'mount');
    run.add({ step: 1 });
    await show(HEATMAP);
    const drawn = await (mounted.mock.results[0]?.value as Promise<Chart>);
    run.add({ step: 2, values: new Float32Array([1, 2, 3, 4, 5, 6]) });
    await view.settled();
    expect(title()).toContain('step 2');
    expect(view.summary()).toContain('from 1 to 6');
    expect(drawn.embeds).toBe(1);
    expect(mounted).toHaveBeenCalledTimes(1);
    mounted.mockRestore();
  });

  it('stays at a chosen step while new ones arrive, and goes back to following', async () => {
    run.add({ step: 1 }, { step: 2 });
    await show(HEATMAP);
    await put('steps', '0');
    expect(view.options).toMatchObject({ step: 1 });
    run.add({ step: 3 });
    await view.settled();
    expect(title()).toContain('step 1');
    control('steps', 'button').click();
    await view.settled();
    expect(view.options).toMatchObject({ step: null });
    expect(title()).toContain('step 3');
  });

  it('says which step it took when the wanted one was not traced', async () => {
    run.add({ step: 10 }, { step: 20 });
    await show({ ...HEATMAP, step: 18 });
    expect(title()).toContain('step 20');
    expect(caption()).toContain('Step 18 was not traced; this is the nearest one.');
  });

  it('counts non-finite cells and what was left out in the caption', async () => {
    run.evictedRows = 7;
    run.sampledEvery = 3;
    run.add({ values: new Float32Array([NaN, 1, 2, Infinity, 4, 5]), nanCount: 40, infCount: 2 });
    await show(HEATMAP);
    const caption = text('.jp-MegalensView-caption');
    expect(caption).toContain('Cells that are not finite (hatched): 2.');
    expect(caption).toContain('40 NaN and 2 infinite values');
    expect(caption).toContain('Of each 3 traced steps');
    expect(caption).toContain('memory: 7.');
    expect(document.querySelector('.jp-MegalensPlot')?.innerHTML).toContain('not finite');
  });

  it('moves a cell cursor by keyboard and announces the value', async () => {
    run.add({ layer: 1 }, { layer: 2 });
    await show(HEATMAP);
    expect(key('ArrowRight')).toBe('layer 1, position 0, tile 0: 100');
    key('ArrowRight');
    expect(key('ArrowDown')).toBe('layer 1, position 1, tile 1: 111');
    key('PageDown');
    expect(key('End')).toBe('layer 2, position 2, tile 1: 221');
  });

  it('puts token text on the position axis and into the announcement', async () => {
    run.add({}, { flag: 'InputTokens', layer: -1, part: 'ids', shape: [1, 3], labels: ['The', ' end', '.'] });
    await show(HEATMAP);
    expect(document.querySelector('.jp-MegalensPlot')?.textContent).toContain('␣end');
    key('ArrowRight');
    expect(key('ArrowRight')).toBe('layer 0, position 1 “␣end”, tile 0: 110');
  });

  it('picks heads of attention, queries downwards and keys to the right', async () => {
    const values = Float32Array.from({ length: 8 }, (_, at) => at);
    run.add({ flag: 'RawAttentionScore_mat_mul', shape: [1, 2, 2, 2], values, compressor: 'NoOp()' });
    await show({ view: 'heatmap', flag: 'RawAttentionScore_mat_mul', head: 1 });
    key('ArrowRight');
    expect(key('ArrowRight')).toBe('layer 0, key 1, query 0: 5');
    await put('head', '0');
    expect(view.options).toMatchObject({ head: 0 });
    expect(title()).toContain('head 0');
  });

  it('writes the numbers of each scale over its picture when layers have their own', async () => {
    run.add({ layer: 1 }, { layer: 2 });
    await show({ ...HEATMAP, scale: 'own' });
    const drawn = document.querySelector('.jp-MegalensPlot')?.textContent ?? '';
    expect(drawn).toContain('layer 1, 100 to 130');
    expect(drawn).toContain('layer 2, 200 to 230');
    expect(drawn).toContain('highest');
  });
});

describe('trend', () => {
  const spike = (layer: number, step: number, value: number): object => ({
    layer,
    step,
    values: new Float32Array(6).fill(value)
  });

  it('draws a line for each layer and says what happened', async () => {
    run.add(
      ...[1, 2].flatMap(layer =>
        [1, 2, 3, 4].map(step => spike(layer, step, layer === 2 && step > 2 ? 4 : 1))
      )
    );
    await show({ view: 'trend', flag: 'MLP1_mat_mul' });
    expect(document.querySelectorAll('.jp-MegalensPlot .mark-line path')).toHaveLength(2);
    expect(view.summary()).toBe('Rms rose from 1 to 4 between step 2 and 3 in layer 2.');
    key('End');
    expect(key('ArrowDown')).toBe('step 4, layer 2: rms 4');
  });

  it('marks the steps with non-finite values and counts them', async () => {
    run.add(spike(1, 1, 1), { step: 2, values: new Float32Array([NaN, 1, 1, 1, Infinity, 1]) });
    await show({ view: 'trend', flag: 'MLP1_mat_mul' });
    expect(caption()).toContain('Values that were not finite: 2; marks along the top');
    expect(document.querySelector('.jp-MegalensPlot')?.innerHTML).toContain('#ff2bd6');
  });

  it('changes to layer × step with the toolbar', async () => {
    run.add(spike(1, 1, 1), spike(1, 3, 2), spike(2, 1, 3));
    await show({ view: 'trend', flag: 'MLP1_mat_mul' });
    await put('kind', 'heatmap');
    expect(view.options).toMatchObject({ kind: 'heatmap' });
    expect(document.querySelectorAll('.jp-MegalensPlot image')).toHaveLength(1);
  });
});

describe('scalars', () => {
  beforeEach(() => {
    run.units = { loss: 'nats/byte', held_out_loss: 'nats/byte', tokens_per_second: '1/s' };
    run.numbers = [1, 2, 3, 4].flatMap(step => [
      { step, name: 'loss', value: 6 - step },
      { step, name: 'held_out_loss', value: 7 - step },
      { step, name: 'tokens_per_second', value: 8000 + step }
    ]);
  });

  it('draws the losses unless told otherwise', async () => {
    await show({ view: 'scalars' });
    expect(title()).toBe('loss, held_out_loss, steps 1 to 4');
    expect(view.summary()).toContain('loss fell from 5 to 2 nats/byte between step 1 and 4.');
  });

  it('says how many points were left out of a file or of memory', async () => {
    run.numbers = Array.from({ length: 30_000 }, (_, at) => ({
      step: at + 1,
      name: 'loss',
      value: Math.sin(at)
    }));
    const few = fewScalars(await run.scalars());
    jest.spyOn(run, 'scalars').mockImplementation(() => Promise.resolve(few ?? run.scalars()));
    await show({ view: 'scalars' });
    const left = 30_000 - (few?.step.length ?? 0);
    expect(left).toBeGreaterThan(1000);
    const words = text('.jp-MegalensView-caption').replace(/(\d)[^\w.](?=\d)/g, '$1');
    expect(words).toContain(`left out to stay within memory: ${left}.`);
  });

  it('gives each unit a panel of its own', async () => {
    await show({ view: 'scalars', names: ['loss', 'tokens_per_second'] });
    const drawn = document.querySelector('.jp-MegalensPlot')?.textContent ?? '';
    expect(drawn).toContain('nats/byte');
    expect(drawn).toContain('1/s');
  });

  it('draws the raw numbers faintly under a smoothed line and says so', async () => {
    await show({ view: 'scalars', names: ['loss'], smoothing: 2 });
    expect(caption()).toContain('trailing mean of 2 points; the numbers themselves are faint');
    const opacities = [...document.querySelectorAll('.jp-MegalensPlot .mark-line path')].map(path =>
      path.getAttribute('opacity')
    );
    expect(opacities).toContain('0.25');
  });

  it('counts a value that is not finite', async () => {
    run.numbers.push({ step: 5, name: 'loss', value: NaN });
    await show({ view: 'scalars', names: ['loss'] });
    expect(caption()).toContain('Values that are not finite: 1');
  });
});

it('keeps Draw in its place whatever is drawn', async () => {
  run.log({ step: 1, name: 'decoder.layers.0.mlp.linear_fc1.weight', mean: 1, std: 1 });
  const before = (): string[] => {
    const ids = [...document.querySelectorAll<HTMLElement>('[data-control]')].map(
      each => each.dataset['control']!
    );
    return ids.slice(0, ids.indexOf('kind'));
  };
  for (const kinds of [
    ['lines', 'heatmap'].map(kind => ({ view: 'trend', flag: 'MLP1_mat_mul', kind }) as ViewOptions),
    ['lines', 'map', 'table', 'overview'].map(kind => ({ view: 'statistics', kind }) as ViewOptions)
  ]) {
    const places: string[][] = [];
    for (const options of kinds) {
      document.body.replaceChildren();
      await show(options);
      places.push(before());
    }
    expect(places[0]!.length).toBeGreaterThan(1);
    expect(new Set(places.map(each => each.join())).size).toBe(1);
  }
});

describe('states', () => {
  const button = (): HTMLButtonElement =>
    document.querySelector('.jp-MegalensState button') as HTMLButtonElement;
  const next = (): Promise<void> => new Promise(done => setTimeout(done));

  it('offers to trace a flag that is not traced', async () => {
    await show({ view: 'heatmap', flag: 'HiddenStates' });
    expect(state()).toBe('Hidden states is not traced.');
    button().click();
    await next();
    expect(run.patches).toEqual([
      { flags: { HiddenStates: { compressor: { name: 'Tile', params: {} }, phases: ['train'] } } }
    ]);
  });

  it('offers to trace a flag of a training while it generates, at its cost', async () => {
    const setting = { compressor: { name: 'NoOp' }, every: 10 };
    run.hello = structuredClone(run.hello!);
    run.hello.config.flags['HiddenStates'] = setting;
    const info = run.hello.flags.find(({ name }) => name === 'HiddenStates')!;
    Object.assign(info, { layers: [0, 1], features: 16, bytes_per_layer: 65_536 });
    await show({ view: 'heatmap', flag: 'HiddenStates', phase: 'generate' });
    expect(state()).toBe('Hidden states is not traced in phase generate.');
    expect(button().textContent).toBe('Trace Hidden states while generating, ≈ 16.1 kB a micro-batch');
    button().click();
    await next();
    expect(run.patches).toEqual([{ flags: { HiddenStates: { ...setting, phases: ['train', 'generate'] } } }]);
  });

  it('gives the reason why a model lacks a flag and shows another', async () => {
    run.add({});
    await show({ view: 'trend', flag: 'Router' });
    expect(state()).toBe('This model has no Router logits: its layers have no experts.');
    await view.update({ flag: 'NoSuchFlag' });
    await view.settled();
    expect(state()).toMatch(/^This run has no flag 'NoSuchFlag'. It has InputTokens, MLP1_mat_mul, /);
    button().click();
    await view.settled();
    expect(view.options).toMatchObject({ flag: 'MLP1_mat_mul' });
  });

  it('draws as soon as the first rows arrive', async () => {
    await show({ view: 'heatmap', flag: 'MLP1_mat_mul' });
    expect(state()).toBe('MLP1 output is traced; its first train step has not arrived yet.');
    run.add({});
    await view.settled();
    expect(document.querySelector('.jp-MegalensView')?.getAttribute('data-state')).toBe('drawn');
  });

  it('shows what failed and tries again', async () => {
    run.add({});
    run.failure = new Error('The server did not answer.');
    await show({ view: 'heatmap', flag: 'MLP1_mat_mul' });
    expect(state()).toBe('The server did not answer.');
    run.failure = null;
    button().click();
    await new Promise<void>(done => {
      const observer = new MutationObserver(() => {
        if (document.querySelector('[data-state="drawn"]')) {
          observer.disconnect();
          done();
        }
      });
      observer.observe(document.body, { attributes: true, subtree: true });
    });
    expect(title()).toContain('MLP1 output');
  });

  it('says which steps are still being read, and no more once all are here', async () => {
    run.add({});
    await show({ view: 'heatmap', flag: 'MLP1_mat_mul' });
    run.reading = [2100, 3981];
    run.connect({ kind: 'live' });
    await view.settled();
    expect(text('.jp-MegalensBanner p')).toMatch(/^Reading steps 2\s100 to 3\s981…$/);
    run.reading = null;
    run.connect({ kind: 'live' });
    await view.settled();
    expect(document.querySelector<HTMLElement>('.jp-MegalensBanner')?.hidden).toBe(true);
  });

  it('keeps the picture and says so while the run is stale or its link is broken', async () => {
    run.add({});
    await show({ view: 'heatmap', flag: 'MLP1_mat_mul' });
    run.connect({ kind: 'stale', since: Date.now() - 12_000 });
    await view.settled();
    expect(text('.jp-MegalensBanner p')).toBe('No frame for 12 s: training is paused or its steps are long.');
    run.connect({ kind: 'reconnecting', attempt: 2, message: '' });
    await view.settled();
    expect(text('.jp-MegalensBanner p')).toContain('broke; try 2');
    expect(document.querySelectorAll('.jp-MegalensPlot image')).toHaveLength(1);
    run.connect({ kind: 'live' });
    await view.settled();
    expect(document.querySelector<HTMLElement>('.jp-MegalensBanner')?.hidden).toBe(true);
  });

  it('says when the training has ended, not that it is paused, and keeps the picture', async () => {
    run.add({});
    await show({ view: 'heatmap', flag: 'MLP1_mat_mul' });
    run.tell({ type: 'status', state: 'finished', step: 1240 });
    await view.settled();
    expect(text('.jp-MegalensBanner p')).toBe('Training finished at step 1 240.');
    run.connect({ kind: 'stale', since: Date.now() - 12_000 });
    await view.settled();
    expect(text('.jp-MegalensBanner p')).toBe('Training finished at step 1 240.');
    run.tell({ type: 'status', state: 'lost', step: 1240 });
    await view.settled();
    expect(text('.jp-MegalensBanner p')).toContain('stopped unexpectedly after step 1 240');
    run.connect({ kind: 'closed', reason: 'finished', message: '' });
    await view.settled();
    expect(text('.jp-MegalensBanner p')).toBe('Training finished at step 1 240.');
    expect(document.querySelectorAll('.jp-MegalensPlot image')).toHaveLength(1);
  });

  it('says of a lab that it has ended, and of no training', async () => {
    run.hello = { ...HELLO, phase: 'generate' };
    run.add({});
    await show({ view: 'heatmap', flag: 'MLP1_mat_mul' });
    run.tell({ type: 'status', state: 'finished', step: 1240 });
    await view.settled();
    expect(text('.jp-MegalensBanner p')).toBe('The lab has ended.');
    run.tell({ type: 'status', state: 'lost', step: 1240 });
    await view.settled();
    expect(text('.jp-MegalensBanner p')).toBe('The process of the lab stopped unexpectedly.');
    run.connect({ kind: 'closed', reason: 'finished', message: '' });
    await view.settled();
    expect(text('.jp-MegalensBanner p')).toBe('The lab has ended.');
  });

  it('says why there is no picture also when the training has ended', async () => {
    run.tell({ type: 'status', state: 'finished', step: 7 });
    await show({ view: 'statistics' });
    expect(state()).toContain('logs no statistics');
  });

  it('offers a layer that exists when the wanted one does not', async () => {
    run.add({ layer: 2 });
    await show({ view: 'heatmap', flag: 'MLP1_mat_mul', layers: '9' });
    expect(state()).toBe('Layers 9 are not traced; there are rows of layer 2.');
    button().click();
    await view.settled();
    expect(view.options).toMatchObject({ layers: '2' });
  });

  it('asks for nothing and leaves nothing behind after it is disposed twice', async () => {
    run.add({});
    const mounted = await show({ view: 'heatmap', flag: 'MLP1_mat_mul' });
    const asked = run.asked.length;
    mounted.dispose();
    mounted.dispose();
    run.add({ step: 2 });
    await next();
    expect(run.asked).toHaveLength(asked);
    expect(mounted.node.childElementCount).toBe(0);
  });

  it('refuses options that the contract does not know, naming the field', async () => {
    await expect(show({ view: 'heatmap', flag: 'X', layers: 'seven' })).rejects.toThrow(/layers/);
  });

  it('speaks the host language', async () => {
    const translate = (words: string, ...args: (string | number)[]): string => `«${words}» ${args.join()}`;
    await show({ view: 'heatmap', flag: 'HiddenStates' }, { translate });
    expect(state()).toContain('«%1 is not traced.»');
  });
});

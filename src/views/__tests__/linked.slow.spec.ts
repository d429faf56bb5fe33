import { Chart } from '../../charts';
import type { ViewOptions } from '../../protocol/views.generated';
import { RunLink } from '../../store/run-link';
import { MemoryRun } from '../../store/__tests__/memory-run';
import { settled, shown, showView, title } from './page';

class LinkedRun extends MemoryRun {
  readonly link = new RunLink();
}

let run: LinkedRun;

beforeEach(() => {
  run = new LinkedRun();
  run.add(
    ...[1, 2, 3].flatMap(step =>
      [1, 2].map(layer => ({ step: step * 10, layer, values: new Float32Array(6).fill(layer) }))
    )
  );
  run.units = { loss: 'nats/byte' };
  run.numbers = [10, 20, 30].map(step => ({ step, name: 'loss', value: 40 - step }));
});

const show = async (options: ViewOptions): Promise<HTMLElement> => (await showView(run, options)).node;

const told = (): Promise<void> =>
  new Promise(resolve => {
    const heard = (): void => {
      run.link.changed.disconnect(heard);
      resolve();
    };
    run.link.changed.connect(heard);
  });
const press = (node: HTMLElement, key: string, init = {}): void =>
  void node
    .querySelector('.jp-MegalensStage')
    ?.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, ...init }));
const chip = (node: HTMLElement): HTMLButtonElement | null =>
  node.querySelector<HTMLButtonElement>('[data-control="filter"]');
const marks = (node: HTMLElement, kind: string): number =>
  node.querySelectorAll(`.jp-MegalensLinked.jp-mod-${kind}`).length;

const TREND: ViewOptions = { view: 'trend', flag: 'MLP1_mat_mul' };
const HEATMAP: ViewOptions = { view: 'heatmap', flag: 'MLP1_mat_mul', layers: 'all' };

describe('pointing', () => {
  it('marks a heatmap’s layer in the trend and its step in the scalars', async () => {
    const [heatmap, trend, scalars] = [
      await show(HEATMAP),
      await show(TREND),
      await show({ view: 'scalars' })
    ];
    press(heatmap, 'ArrowRight');
    press(heatmap, 'PageDown');
    await told();
    expect(run.link.pointed?.at).toEqual({ layer: 2, step: 30 });
    expect(marks(trend, 'line')).toBe(1);
    expect(marks(trend, 'rule')).toBe(1);
    expect(marks(scalars, 'rule')).toBe(1);
    expect(marks(heatmap, 'box')).toBe(0);
  });

  it('marks a trend’s layer in the heatmap, and Esc takes it back', async () => {
    const [heatmap, trend] = [await show(HEATMAP), await show({ ...TREND, kind: 'heatmap' })];
    press(trend, 'ArrowLeft');
    press(trend, 'ArrowDown');
    await told();
    expect(run.link.pointed?.at).toEqual({ layer: 2, step: 30 });
    expect(marks(heatmap, 'box')).toBe(1);
    press(trend, 'Escape');
    await told();
    expect(marks(heatmap, 'box')).toBe(0);
  });

  it('marks the row of a layer × step picture', async () => {
    const [heatmap, trend] = [await show(HEATMAP), await show({ ...TREND, kind: 'heatmap' })];
    press(heatmap, 'ArrowRight');
    await told();
    expect(marks(trend, 'box')).toBe(1);
    expect(marks(trend, 'rule')).toBe(1);
  });

  it('means one layer by one number in tensors and in the names of statistics', async () => {
    const at = (layer: number): string => `decoder.layers.${layer}.mlp.linear_fc1.weight`;
    run.log(
      ...[10, 20, 30].flatMap(step => [0, 1].map(layer => ({ step, name: at(layer), samples: step, std: 1 })))
    );
    run.add({ step: 30, layer: 0 }, { step: 30, layer: 1 });
    const heatmap = await show({ ...HEATMAP, layers: '0-1' });
    const map = await show({ view: 'statistics', kind: 'layer_map' });
    press(map, 'End');
    press(map, 'ArrowDown');
    await told();
    // The second row is that of layers.1.
    expect(map.querySelector('[aria-live]')?.textContent).toContain('layer 1');
    expect(run.link.pointed?.at).toMatchObject({ layer: 1 });
    expect(marks(heatmap, 'box')).toBe(1);
    press(heatmap, 'ArrowRight');
    await told();
    expect(heatmap.querySelector('[aria-live]')?.textContent).toContain('layer 0');
    expect(run.link.pointed?.at).toMatchObject({ layer: 0 });
    expect(marks(map, 'box')).toBe(1);
  });

  it('draws no chart anew', async () => {
    const mounted = jest.spyOn(Chart, 'mount');
    const [heatmap] = [await show(HEATMAP), await show(TREND)];
    const charts = await Promise.all(mounted.mock.results.map(each => each.value as Promise<Chart>));
    const patched = jest.spyOn(Chart.prototype, 'apply');
    press(heatmap, 'ArrowRight');
    await told();
    await settled();
    expect(charts.map(chart => chart.embeds)).toEqual([1, 1]);
    expect(patched).not.toHaveBeenCalled();
    mounted.mockRestore();
    patched.mockRestore();
  });

  it('ends with the view that pointed', async () => {
    const [heatmap, trend] = [await show(HEATMAP), await show(TREND)];
    press(heatmap, 'ArrowRight');
    await told();
    shown.shift()?.dispose();
    await told();
    expect(run.link.pointed).toBeNull();
    expect(marks(trend, 'line')).toBe(0);
  });
});

describe('chosen steps', () => {
  it('are chosen with Shift and the arrows, and filter the other views only', async () => {
    const [trend, scalars] = [await show(TREND), await show({ view: 'scalars' })];
    press(trend, 'ArrowLeft');
    press(trend, 'Home');
    press(trend, 'ArrowRight', { shiftKey: true });
    await settled();
    expect(run.link.filter?.steps).toEqual([10, 20]);
    expect(trend.querySelector('[aria-live]')?.textContent).toContain('Steps 10 to 20 chosen.');
    expect(title(trend)).toContain('steps 10 to 30');
    expect(trend.querySelectorAll('.jp-MegalensBand')).toHaveLength(1);
    expect(title(scalars)).toBe('loss, steps 10 to 20');
    expect(scalars.querySelectorAll('.jp-MegalensBand')).toHaveLength(0);
    expect(chip(scalars)?.textContent).toBe('steps 10–20✕');
    expect(chip(trend)?.textContent).toBe('steps 10–20✕');
  });

  it('hold a heatmap to the newest step among them', async () => {
    const heatmap = await show(HEATMAP);
    run.link.choose({}, [10, 20]);
    await settled();
    expect(title(heatmap)).toContain('step 20');
    run.add({ step: 40 });
    await settled();
    expect(title(heatmap)).toContain('step 20');
  });

  it('are taken back by the mark in any view', async () => {
    const [trend, scalars] = [await show(TREND), await show({ view: 'scalars' })];
    run.link.choose({}, [20, 30]);
    await settled();
    expect(title(trend)).toContain('steps 20 to 30');
    chip(scalars)?.click();
    await settled();
    expect(title(trend)).toContain('steps 10 to 30');
    expect(chip(trend)).toBeNull();
    expect(chip(scalars)).toBeNull();
  });

  it('narrow the steps that the options ask for, and change no options', async () => {
    const trend = await show({ ...TREND, steps: [20, 30] });
    run.link.choose({}, [10, 20]);
    await settled();
    expect(title(trend)).toContain('steps 20 to 20');
    expect(shown[0]?.options).toMatchObject({ steps: [20, 30] });
  });

  it('are said to be the reason where they leave nothing', async () => {
    const scalars = await show({ view: 'scalars' });
    run.link.choose({}, [11, 12]);
    await settled();
    const state = scalars.querySelector('.jp-MegalensState') as HTMLElement;
    expect(state.textContent).toContain(
      'Nothing here lies in steps 11 to 12, which were chosen in another view.'
    );
    state.querySelector('button')?.click();
    await settled();
    expect(title(scalars)).toBe('loss, steps 10 to 30');
  });

  it('are found on a time axis as well', async () => {
    const scalars = await show({ view: 'scalars', x: 'time' });
    press(scalars, 'ArrowLeft');
    press(scalars, 'Home');
    press(scalars, 'ArrowRight', { shiftKey: true });
    expect(run.link.filter?.steps).toEqual([10, 20]);
    await settled();
    expect(scalars.querySelectorAll('.jp-MegalensBand')).toHaveLength(1);
  });
});

describe('the pinned step', () => {
  const pins = (node: HTMLElement): number => node.querySelectorAll('.jp-MegalensPin').length;
  const pinChip = (node: HTMLElement): HTMLButtonElement | null =>
    node.querySelector<HTMLButtonElement>('[data-control="pin"]');
  const said = (node: HTMLElement): string => node.querySelector('[aria-live]')?.textContent ?? '';
  /** Cells of the tooltip, by rows of four where a step is pinned. */
  const cells = (node: HTMLElement): string[] =>
    [...node.querySelectorAll('.jp-MegalensTooltip-lines > span')].map(each =>
      (each.textContent ?? '').replace('\u2212', '-')
    );

  it('is marked in every view of the run, and pictures of one step go there', async () => {
    const [trend, scalars, heatmap] = [
      await show(TREND),
      await show({ view: 'scalars' }),
      await show(HEATMAP)
    ];
    const before = { ...shown[2]?.options };
    press(trend, 'ArrowLeft');
    press(trend, 'Home');
    press(trend, 'p');
    await settled();
    expect(run.link.pinned).toBe(10);
    expect(said(trend)).toBe('Step 10 pinned.');
    expect([pins(trend), pins(scalars), pins(heatmap)]).toEqual([1, 1, 0]);
    expect(title(heatmap)).toContain('step 10');
    expect(shown[2]?.options).toEqual(before);
    for (const node of [trend, scalars, heatmap]) {
      expect(pinChip(node)?.textContent).toBe('Pinned: step 10✕');
    }
    pinChip(scalars)?.click();
    await settled();
    expect(run.link.pinned).toBeNull();
    expect([pins(trend), pins(scalars)]).toEqual([0, 0]);
    expect(title(heatmap)).toContain('step 30');
    expect(pinChip(heatmap)).toBeNull();
  });

  it('is unpinned by the same key at the same step, and by Esc', async () => {
    const trend = await show(TREND);
    press(trend, 'End');
    press(trend, 'P');
    expect(run.link.pinned).toBe(30);
    press(trend, 'P');
    expect(run.link.pinned).toBeNull();
    expect(said(trend)).toBe('No step is pinned.');
    press(trend, 'P');
    press(trend, 'Escape');
    expect(run.link.pinned).toBeNull();
  });

  it('stands in tips beside the value under the cursor, with the difference', async () => {
    run.link.pin(10);
    const [scalars, map] = [
      await show({ view: 'scalars' }),
      await show({ ...TREND, kind: 'heatmap', statistic: 'kept_mean' })
    ];
    press(scalars, 'ArrowLeft');
    await settled();
    // The loss is 40 minus the step.
    await new Promise(resolve => setTimeout(resolve));
    expect(cells(scalars)).toEqual(['', '', 'at step 10', 'difference', 'loss', '10', '30', '-20']);
    press(scalars, 'Home');
    await new Promise(resolve => setTimeout(resolve));
    expect(cells(scalars)).toEqual(['loss', '30']);
    press(map, 'ArrowLeft');
    await new Promise(resolve => setTimeout(resolve));
    expect(cells(map).slice(4)).toEqual(['layer 1', '1', '1', '0']);
  });

  it('says when a line was measured last before it, without a difference', async () => {
    run.units = { loss: 'nats', held_out: 'nats' };
    run.numbers.push({ step: 10, name: 'held_out', value: 5 }, { step: 30, name: 'held_out', value: 4 });
    run.link.pin(20);
    const scalars = await show({ view: 'scalars', names: ['loss', 'held_out'] });
    press(scalars, 'ArrowLeft');
    await new Promise(resolve => setTimeout(resolve));
    expect(cells(scalars).slice(4)).toEqual([
      '▸ loss',
      '10',
      '20',
      '-10',
      'held_out',
      '4',
      '5 (step 10)',
      ''
    ]);
  });

  it('is left by a picture of one step whose slider is moved, until another is pinned', async () => {
    const heatmap = await show(HEATMAP);
    run.link.pin(10);
    await settled();
    const slider = heatmap.querySelector<HTMLInputElement>('input[type="range"]');
    if (slider) {
      slider.value = '1';
      slider.dispatchEvent(new Event('input'));
    }
    await settled();
    expect(title(heatmap)).toContain('step 20');
    expect(run.link.pinned).toBe(10);
    run.link.pin(30);
    await settled();
    expect(title(heatmap)).toContain('step 30');
  });

  it('is gone to by a history, and by layers at a step', async () => {
    run.log(...[10, 20, 30].map(step => ({ step, name: 'decoder.layers.0.mlp.weight', std: step })));
    run.link.pin(20);
    const history = await show({ view: 'history', flag: 'MLP1_mat_mul' });
    const layers = await show({ view: 'statistics', kind: 'layers', by: ['layer'] });
    expect(history.querySelector('.jp-MegalensHistory-tensor .jp-MegalensView-title')?.textContent).toContain(
      'step 20'
    );
    expect(pins(history)).toBe(1);
    expect(title(layers)).toContain('step 20');
  });
});

/** @jest-environment ./jest.environment.node.js */

import type { ViewOptions } from '../../protocol/views.generated';
import type { ITip } from '../shared/table';
import { loadModel } from './model';
import { MemoryRun } from '../../store/__tests__/memory-run';

/** What a view says of a place, as heading and lines, once it has read its rows. */
async function tips(
  run: MemoryRun,
  options: ViewOptions
): Promise<(x: number, y: number, facet?: Record<string, unknown>) => [string, ...string[]] | null> {
  const { model, loaded } = await loadModel(run, options);
  const [low, high] = 'content' in loaded ? loaded.content.extent.y : [NaN, NaN];
  // Lines grow upwards, and a place is counted from the top.
  const isUp = 'kind' in options && options.kind === 'lines';
  return (x, y, facet = {}) => {
    const mark = model.probe({
      frame: { left: 0, top: 0, width: 400, height: 200, facet },
      x,
      y: isUp ? low + high - y : y,
      down: 0
    });
    const tip: ITip | null = mark && model.tipOf(mark);
    return tip && [tip.heading, ...tip.lines.map(({ name, value }) => `${name}: ${value}`)];
  };
}

it('says of a cell its value, its place, its token and the step', async () => {
  const run = new MemoryRun();
  const values = Float32Array.from([1, 4, 2, 5, 3, NaN]);
  run.add(
    { layer: 4, values },
    { flag: 'InputTokens', layer: -1, part: 'ids', shape: [1, 3], labels: ['a', 'b', ' '] }
  );
  const tip = await tips(run, { view: 'heatmap', flag: 'MLP1_mat_mul', layers: 'all' });
  expect(tip(0.6, 1.2, { layer: 4 })).toEqual([
    'layer 4',
    'value: 5',
    'position: 1 “b”',
    'tile: 1',
    'step: 1'
  ]);
  expect(tip(2, 1, { layer: 4 })?.slice(1, 3)).toEqual(['value: NaN', 'position: 2 “␣”']);
  expect(tip(0, 0, { layer: 5 })).toBeNull();
});

it('lists every layer at the nearest step of a trend, and of cells the one that is meant', async () => {
  const run = new MemoryRun();
  const all = (value: number): Float32Array => new Float32Array(6).fill(value);
  run.add(
    { step: 10, layer: 1, values: all(0.5) },
    { step: 20, layer: 1, values: all(0.75) },
    { step: 10, layer: 2, values: all(1.5) },
    { step: 20, layer: 2, values: all(NaN) }
  );
  const options = { view: 'trend', flag: 'MLP1_mat_mul', statistic: 'mean' } as const;
  const lines = await tips(run, options);
  expect(lines(17, 0)).toEqual(['step 20', 'layer 1: 0.75', 'layer 2: NaN (6 not finite)']);
  const cells = await tips(run, { ...options, kind: 'heatmap' });
  expect(cells(11, 2.2)).toEqual(['step 10', 'layer 2: 1.5']);
  expect(cells(19, 5)).toBeNull();
});

it('lists the scalars of the panel under the pointer only', async () => {
  const run = new MemoryRun();
  run.units = { loss: 'nats', speed: '1/s' };
  run.numbers = [
    { step: 1, name: 'loss', value: 5 },
    { step: 2, name: 'loss', value: 4 },
    { step: 2, name: 'speed', value: 8700 }
  ];
  const tip = await tips(run, { view: 'scalars', names: ['loss', 'speed'] });
  expect(tip(1.9, 0, { panel: 0 })).toEqual(['step 2', 'loss: 4']);
  expect(tip(1.9, 0, { panel: 1 })).toEqual(['step 2', 'speed: 8\u202f700']);
});

describe('groups of tensors', () => {
  const run = new MemoryRun();
  const name = (layer: number): string => `decoder.layers.${layer}.mlp.linear_fc1.weight`;
  run.log(
    { step: 10, name: name(0), count: 1 },
    { step: 10, name: name(1), count: 1, std: 5 },
    { step: 20, name: name(0), count: 1, std: 2 },
    { step: 20, name: name(1), count: 4, nan: 3 }
  );

  it('are named at the step, the one under the pointer with a mark', async () => {
    const tip = await tips(run, { view: 'statistics', kind: 'lines', by: ['layer'], transform: 'linear' });
    expect(tip(11, 5)).toEqual(['step 10', 'layer 0: 1', '▸ layer 1: 5']);
    expect(tip(19, 900)?.slice(0, 2)).toEqual(['step 20', 'layer 0: 2']);
    expect(tip(19, 900)?.[2]).toBe('layer 1: 2 (3 not finite)');
  });

  it('are named at a cell of a map', async () => {
    const tip = await tips(run, { view: 'statistics', kind: 'layer_map', by: ['layer'] });
    expect(tip(18, 0.3)).toEqual(['layer 0', 'step 20: 2']);
    expect(tip(18, 3)).toBeNull();
  });
});

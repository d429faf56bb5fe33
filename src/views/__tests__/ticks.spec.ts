import { grads } from '../../store/__tests__/memory-moments';
import type { ViewOptions } from '../../protocol/views.generated';
import { MemoryRun } from '../../store/__tests__/memory-run';
import { showView } from './page';

/** A run of so many steps, with something of everything. */
function runOf(steps: number): MemoryRun {
  const run = new MemoryRun();
  run.connection = { kind: 'recorded' };
  run.units = { loss: 'nats' };
  for (let step = 1; step <= steps; step += Math.max(1, Math.floor(steps / 50))) {
    run.add({ step, layer: 0, values: new Float32Array(6).fill(step) });
    run.numbers.push({ step, name: 'loss', value: 1 / step });
    run.log(...grads(1, 1).map(row => ({ ...row, step })));
  }
  return run;
}

const VIEWS: [string, ViewOptions][] = [
  ['scalars', { view: 'scalars' }],
  ['a trend', { view: 'trend', flag: 'MLP1_mat_mul' }],
  ['a layer × step trend', { view: 'trend', kind: 'heatmap', flag: 'MLP1_mat_mul' }],
  ['lines of statistics', { view: 'statistics' }],
  ['a map of statistics', { view: 'statistics', kind: 'layer_map' }]
];

it.each(VIEWS.flatMap(([name, view]) => [3, 1200].map(steps => [name, steps, view] as const)))(
  'the step axis of %s has whole, round numbers: %i steps',
  async (_, steps, options) => {
    const { node } = await showView(runOf(steps), options);
    const labels = [...node.querySelectorAll('.role-axis-label')]
      .map(axis => [...axis.querySelectorAll('text')].map(each => each.textContent ?? ''))
      .find(texts => texts.some(text => text.includes(steps === 3 ? '3' : '000')));
    const told = (labels ?? []).filter(Boolean).map(text => Number(text.replace(/[\s\u2009\u202f]/g, '')));
    expect(told.length).toBeGreaterThan(1);
    expect(told.every(Number.isInteger)).toBe(true);
    const apart = (told[1] ?? NaN) - (told[0] ?? NaN);
    expect([1, 2, 5]).toContain(apart / 10 ** Math.floor(Math.log10(apart)));
    expect(told.every(tick => tick % apart === 0)).toBe(true);
  }
);

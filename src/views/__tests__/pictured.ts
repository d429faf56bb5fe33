import { grads } from '../../store/__tests__/memory-moments';
import type { ViewOptions } from '../../protocol/views.generated';
import { WrittenRun } from '../../store/__tests__/written-run';

/** Views and kinds by a name, each with how many pictures it is. */
export type Pictured = readonly (readonly [name: string, options: ViewOptions, pictures: number])[];

/** Every view and kind of the core. */
export const PICTURED: Pictured = [
  ['heatmap', { view: 'heatmap', flag: 'MLP1_mat_mul', layers: 'all', transform: 'log' }, 1],
  ['heatmap of one layer', { view: 'heatmap', flag: 'MLP1_mat_mul', layers: '1', step: 2 }, 1],
  ['trend as lines', { view: 'trend', flag: 'MLP1_mat_mul', statistic: 'mean', interval: 'ci95' }, 1],
  ['trend as cells', { view: 'trend', flag: 'MLP1_mat_mul', kind: 'heatmap' }, 1],
  ['scalars', { view: 'scalars', names: ['loss', 'lr'], smoothing: 3 }, 1],
  ['history', { view: 'history', flag: 'MLP1_mat_mul' }, 2],
  ...(['overview', 'lines', 'layers', 'layer_map', 'item_map', 'map', 'tensors', 'table'] as const).map(
    (kind): [string, ViewOptions, number] => [
      `moments as ${kind}`,
      { view: 'statistics', kind, by: ['family'] },
      kind === 'overview' ? 2 : 1
    ]
  ),
  ['moments as a map over ranks', { view: 'statistics', kind: 'map', columns: 'rank', colors: 'sigma' }, 1],
  ['moments as bars', { view: 'statistics', kind: 'layers', marks: 'bars' }, 1]
];

/** A run that has something of everything in the core, with values that are not finite. */
export function fullRun(): WrittenRun {
  const run = new WrittenRun();
  run.connection = { kind: 'recorded' };
  for (const step of [1, 2, 4]) {
    for (const layer of [1, 2]) {
      const values = new Float32Array(6).map((_, at) => (at - 2) * layer * step);
      values[3] = step === 4 ? NaN : 3;
      run.add({ step, layer, values, nanCount: step === 4 ? 1 : 0 });
    }
    run.numbers.push(
      { step, name: 'loss', value: step === 2 ? NaN : 5 - step },
      { step, name: 'lr', value: 1e-3 * step }
    );
  }
  run.units = { loss: 'nats', lr: '' };
  run.log(...grads(3, 5, (step, layer) => (step === 3 && layer === 1 ? { nan: 2 } : {})));
  return run;
}

import type { ViewOptions } from '../../protocol/views.generated';
import { grads } from './moments-page';
import { alarmRow } from '../../store/__tests__/memory-run';
import { WrittenRun } from '../../store/__tests__/written-run';
import { textRows } from '../../instruments/generation/views/__tests__/generated-text';

/** Every view and kind, by a name. */
export const PICTURED: readonly (readonly [string, ViewOptions])[] = [
  ['heatmap', { view: 'heatmap', flag: 'MLP1_mat_mul', layers: 'all', transform: 'log' }],
  ['heatmap of one layer', { view: 'heatmap', flag: 'MLP1_mat_mul', layers: '1', step: 2 }],
  ['trend as lines', { view: 'trend', flag: 'MLP1_mat_mul', statistic: 'mean', interval: 'ci95' }],
  ['trend as cells', { view: 'trend', flag: 'MLP1_mat_mul', kind: 'heatmap' }],
  ['scalars', { view: 'scalars', names: ['loss', 'lr'], smoothing: 3 }],
  ['history', { view: 'history', flag: 'MLP1_mat_mul' }],
  ...(['overview', 'lines', 'layers', 'layer_map', 'item_map', 'map', 'tensors', 'table'] as const).map(
    (kind): [string, ViewOptions] => [`moments as ${kind}`, { view: 'moments', kind, by: ['family'] }]
  ),
  ['health', { view: 'health' }],
  ['pipeline', { view: 'pipeline', activation_mb: 100, memory_gb: 2 }],
  ['split', { view: 'split', rank_map: 'megafbd' }],
  ['tokens', { view: 'tokens' }],
  ['tokens up to a position', { view: 'tokens', color: 'surprise', position: 2 }],
  ['moments as a map over ranks', { view: 'moments', kind: 'map', columns: 'rank', colors: 'sigma' }],
  ['moments as bars', { view: 'moments', kind: 'layers', marks: 'bars' }]
];

/** A run that has something of everything, with values that are not finite. */
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
  run.alarm(
    alarmRow({ step: 3 }),
    alarmRow({ step: 3, name: 'decoder.layers.0.mlp.linear_fc1.weight', place: 5 })
  );
  run.generated(1, { prompts: ['Once'], tokens: 3 }, { tokens: 3, seconds: 0.1 });
  run.write('tokens', ...textRows([['Once'], [' upon', 0.9], ['\n', 0.1], ['漢', NaN]], 1));
  return run;
}

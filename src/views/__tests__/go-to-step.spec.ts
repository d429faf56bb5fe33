import type { ViewOptions } from '../../protocol/views.generated';
import { fullRun } from './pictured';
import { put, showView } from './page';

const FLAG = { flag: 'MLP1_mat_mul' } as const;

it.each<[string, ViewOptions, RegExp]>([
  ['scalars', { view: 'scalars' }, /^step 2, loss/],
  ['a trend', { view: 'trend', ...FLAG }, /^step 2, layer 1/],
  ['a layer × step trend', { view: 'trend', kind: 'heatmap', ...FLAG }, /^step 2, layer 1/],
  ['lines of statistics', { view: 'statistics' }, /^step 2, /],
  ['single tensors', { view: 'statistics', kind: 'tensors' }, /^step 2, /],
  ['an overview', { view: 'statistics', kind: 'overview' }, /^step 2, /],
  ['a map of statistics', { view: 'statistics', kind: 'layer_map' }, /step 2 /],
  ['layers at a step', { view: 'statistics', kind: 'layers', by: ['layer'] }, /by layer, step 2$/],
  ['a heatmap', { view: 'heatmap', layers: 'all', ...FLAG }, /step 2$/],
  ['a history', { view: 'history', ...FLAG }, /step 2$/]
])('goes to a step in %s', async (_, options, wanted) => {
  const { node } = await showView(fullRun(), options);
  await put('go', '2');
  const told = [...node.querySelectorAll('[aria-live], .jp-MegalensView-title')].map(
    each => each.textContent ?? ''
  );
  expect(told.some(text => wanted.test(text))).toBe(true);
});

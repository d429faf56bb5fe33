import type { ConsoleMessage } from '@playwright/test';
import type { ViewOptions } from '../../src/protocol/views.generated';
import type { ISyntheticShape } from './source';
import { picture } from '../picture';
import { syntheticAlarms } from './alarms';
import { breaksNoRule, breaksNoRuleOpen } from './rules';
import { SMALL_RUN } from './small-run';
import { expect, setTheme, test } from './test';

const SMALL: ISyntheticShape = {
  ...SMALL_RUN,
  alarms: syntheticAlarms(),
  events: [
    { kind: 'settings', first: 10, last: 10, text: 'Tile(96) → Tile(48), by ada' },
    { kind: 'pause', first: 30, last: 30, text: 'paused by ada' },
    { kind: 'lost', first: 50, last: 62, text: '13 steps did not arrive' },
    { kind: 'perturbation', first: 75, last: 75, text: 'noise on 5 weights, by bob' },
    { kind: 'nonfinite', first: 80, last: 80, text: 'NaN in MLP1 output' },
    { kind: 'checkpoint', first: 100, last: 100, text: 'Checkpoint saved: checkpoint-100' }
  ]
};

/** The same on several ranks. */
const RANKS: ISyntheticShape = { ...SMALL, moments: { layers: 6, steps: 400, bad: 320, ranks: 8 } };

const PICTURES: Record<string, ViewOptions> = {
  'heatmap-one': { view: 'heatmap', flag: 'MLP1_mat_mul', layers: '1' },
  'heatmap-all': { view: 'heatmap', flag: 'MLP1_mat_mul', layers: 'all' },
  'heatmap-own': { view: 'heatmap', flag: 'MLP1_mat_mul', layers: 'all', scale: 'own', transform: 'log' },
  'heatmap-attention': { view: 'heatmap', flag: 'RawAttentionScore_mat_mul', head: 1 },
  'trend-lines': { view: 'trend', flag: 'MLP1_mat_mul' },
  'trend-heatmap': { view: 'trend', flag: 'MLP1_mat_mul', kind: 'heatmap' },
  'trend-band': { view: 'trend', flag: 'MLP1_mat_mul', statistic: 'mean', interval: 'std', layers: '0,3' },
  history: { view: 'history', flag: 'MLP1_mat_mul', layer: 2, step: 62 },
  scalars: { view: 'scalars', smoothing: 20 },
  'scalars-all': { view: 'scalars', names: ['loss', 'held_out_loss', 'grad_norm', 'tokens_per_second'] },
  'scalars-hidden': { view: 'scalars', names: ['loss', 'held_out_loss', 'grad_norm'], hidden: ['loss'] },
  'moments-overview': { view: 'statistics', kind: 'overview' },
  'moments-lines': { view: 'statistics', statistic: 'kurtosis', by: ['layer'] },
  'moments-smooth': { view: 'statistics', by: ['family'], smoothing: 20, show: 'percent' },
  'moments-layers': { view: 'statistics', kind: 'layers', by: ['layer', 'item_type'], statistic: 'rms' },
  'moments-bars': {
    view: 'statistics',
    kind: 'layers',
    by: ['layer', 'family'],
    marks: 'bars',
    statistic: 'rms'
  },
  'moments-layer-map': { view: 'statistics', kind: 'layer_map', statistic: 'rms', transform: 'log' },
  'moments-item-map': { view: 'statistics', kind: 'item_map', statistic: 'kurtosis' },
  'ranks-of-step': {
    view: 'statistics',
    kind: 'map',
    by: ['name'],
    columns: 'rank',
    colors: 'sigma',
    transform: 'log',
    cells: ['["decoder.layers.2.mlp.linear_fc1.weight",5]', '["decoder.layers.2.mlp.linear_fc1.weight",0]']
  },
  'ranks-of-rank': {
    view: 'statistics',
    kind: 'map',
    by: ['name'],
    where: { rank: '5' },
    cells: [
      '["decoder.layers.2.mlp.linear_fc1.weight",100]',
      '["decoder.layers.2.mlp.linear_fc1.weight",300]'
    ]
  },
  'ranks-of-tensor': {
    view: 'statistics',
    kind: 'map',
    by: ['rank'],
    where: { name: '^decoder\\.layers\\.2\\.mlp\\.linear_fc1\\.weight$' },
    colors: 'sigma',
    cells: ['[5,300]', '[4,300]']
  },
  'moments-tensors': {
    view: 'statistics',
    kind: 'tensors',
    where: { name: 'fc1' },
    transform: 'log',
    x: 'samples'
  },
  'moments-table': { view: 'statistics', kind: 'table', statistic: 'std' },
  'moments-gain': { view: 'statistics', stat: 'activation', ratio: 'gain', statistic: 'rms', by: ['layer'] },
  health: { view: 'health' },
  'health-rule': { view: 'health', rule: 'jump' },
  timeline: { view: 'timeline' },
  'timeline-map': { view: 'timeline', kind: 'map' },
  pipeline: { view: 'pipeline', activation_mb: 400, weight_mb: 6000, memory_gb: 9 },
  'pipeline-measured': { view: 'pipeline', kind: 'plan', schedule: 'measured' },
  split: {
    view: 'split',
    ...{
      devices: 2,
      forward: 24,
      backward: 48,
      memory_gb: 13,
      others: 2,
      others_slower: 1,
      others_memory_gb: 4
    },
    ...{ micro_batches: 7, model_layers: 6, weight_mb: 2000, state_mb: 16_000, activation_mb: 8000 }
  },
  'split-map': {
    view: 'split',
    kind: 'map',
    rank_map: 'megafbd',
    tensor: 4,
    pipeline: 4,
    data: 2
  },
  'pipeline-large': { view: 'pipeline', kind: 'plan', schedule: 'zb_v', stages: 8, micro_batches: 64 },
  'state-mixed': { view: 'statistics', stat: 'activation' },
  'state-empty': { view: 'heatmap', flag: 'HiddenStates' }
};

/** Those that axe looks at too: each view as it stands alone, that of statistics in each kind. */
const JUDGED: readonly string[] = [
  ...[
    'heatmap-all',
    'trend-lines',
    'trend-heatmap',
    'history',
    'scalars',
    'health',
    'timeline',
    'timeline-map'
  ],
  ...['pipeline', 'split', 'moments-overview', 'moments-lines', 'moments-layers', 'moments-layer-map'],
  ...['moments-item-map', 'ranks-of-step', 'moments-tensors', 'moments-table']
];

/** Of the menu of actions, which is the same in all of them, those of a tensor and of statistics. */
const WITH_MENU: readonly string[] = ['heatmap-all', 'moments-lines'];

/** Run in the page: sizes of its texts that the design language does not have, with one text each. */
function sizesOfText(): string[] {
  const found = [...document.querySelectorAll<HTMLElement>('.jp-MegalensView :not(svg *)')].filter(
    node =>
      node.offsetParent &&
      [...node.childNodes].some(
        ({ nodeType, data }: Node & { data?: string }) => nodeType === 3 && data?.trim()
      )
  );
  // JupyterLab's small size is a part of its usual one, 13 pixels.
  const others = found
    .map(node => [parseFloat(getComputedStyle(node).fontSize).toFixed(1), node] as const)
    .filter(([size]) => !['13.0', '10.8'].includes(size));
  return [
    ...new Map(others.map(([size, node]) => [size, `${size} px: ${node.textContent?.slice(0, 40)}`])).values()
  ];
}

for (const [name, options] of Object.entries(PICTURES)) {
  const judged = JUDGED.includes(name);

  test(`${name} draws in both themes without an error${judged ? ', and breaks no rule of axe' : ''}`, async ({
    page
  }) => {
    const errors: string[] = [];
    const failed = (error: Error): void => void errors.push(error.message);
    const told = (message: ConsoleMessage): void => {
      if (message.type() === 'error') {
        errors.push(message.text());
      }
    };
    page.on('pageerror', failed).on('console', told);
    const shape = name.startsWith('ranks') ? RANKS : { ...SMALL, pipeline: name === 'pipeline-measured' };
    await page.evaluate(([view, run]) => window.harness.show(view, run), [options, shape] as const);
    for (const theme of ['light', 'dark'] as const) {
      await setTheme(page, theme);
      await picture(page, `${name}-${theme}`, { fullPage: true });
      const drawn = await page.locator('.jp-MegalensView').first().getAttribute('data-state');
      expect(drawn).toBe(name.startsWith('state') ? 'none' : 'drawn');
      expect(await page.evaluate(sizesOfText)).toEqual([]);
      if (judged) {
        await breaksNoRule(page, theme, name);
        for (const button of [/^more.*▾$/i, ...(WITH_MENU.includes(name) ? ['More actions'] : [])]) {
          await breaksNoRuleOpen(page, theme, name, button);
        }
      }
    }
    page.off('pageerror', failed).off('console', told);
    expect(errors).toEqual([]);
  });
}

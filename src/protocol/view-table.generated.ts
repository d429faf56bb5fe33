// Generated from protocol/views.schema.json by scripts/generate-protocol.mjs. Do not edit: run `npm run generate`.

import type { IViewInfo } from './view-descriptor';
import type { ViewOptions } from './views.generated';

/** What is known of each view before its code is loaded, in the order in which views are offered. */
export const VIEWS: Readonly<Record<ViewOptions['view'], IViewInfo>> = {
  overview: {
    name: 'overview',
    method: 'overview',
    title: 'Overview',
    summary: 'The run at a glance, and what is out of the ordinary',
    label: 'Open Overview of a Run',
    command: 'megalens:open-overview',
    group: 'run',
    offer: ['panel', 'palette', 'launcher'],
    needs: { streams: [], flag: false },
    report: { order: 0 }
  },
  heatmap: {
    name: 'heatmap',
    method: 'heatmap',
    title: 'Heatmap',
    summary: 'One tensor, position by tile',
    label: 'Open Heatmap of a Traced Tensor',
    command: 'megalens:open-heatmap',
    group: 'tensors',
    offer: ['panel', 'palette'],
    needs: { streams: ['tensors'], flag: true, absent: 'Nothing is traced yet' },
    phases: { generate: { phase: 'generate', generation: 0 } },
    report: { order: 4, options: { layers: 'all' } }
  },
  trend: {
    name: 'trend',
    method: 'trend',
    title: 'Trend',
    summary: 'A statistic per layer over steps',
    label: 'Open Layer Trend',
    command: 'megalens:open-trend',
    group: 'tensors',
    offer: ['panel', 'palette'],
    needs: { streams: ['tensors'], flag: true, absent: 'Nothing is traced yet' },
    phases: { generate: { phase: 'generate' } },
    report: { order: 3 }
  },
  history: {
    name: 'history',
    method: 'history',
    title: 'History',
    summary: 'Layer by step, and the tensor at any of them',
    label: 'Open History of a Traced Tensor',
    command: 'megalens:open-history',
    group: 'tensors',
    offer: ['panel', 'palette'],
    needs: { streams: ['tensors'], flag: true, absent: 'Nothing is traced yet' },
    phases: { generate: { phase: 'generate' } }
  },
  distribution: {
    name: 'distribution',
    method: 'distribution',
    title: 'Distribution',
    summary: 'How the values of a tensor are distributed over steps',
    label: 'Open Distribution over Time',
    command: 'megalens:open-distribution',
    group: 'tensors',
    offer: ['panel', 'palette'],
    needs: { streams: ['tensors'], flag: true, compressor: 'Histogram', absent: 'Nothing is traced yet' },
    phases: { generate: { phase: 'generate' } }
  },
  statistics: {
    name: 'statistics',
    method: 'statistics',
    was: ['moments'],
    title: 'Statistics',
    summary: 'Statistics of weights, gradients and activations, grouped as you like',
    label: 'Open Statistics of Weights, Gradients and Activations',
    command: 'megalens:open-statistics',
    group: 'statistics',
    together: 'training',
    offer: ['panel', 'palette'],
    needs: {
      streams: ['moments'],
      flag: false,
      absent:
        'No statistics are logged. In the training script: megalens.log_statistics(model, optimizer, param=1, grad=1)'
    },
    first: { kind: 'overview' },
    report: { order: 2 }
  },
  scalars: {
    name: 'scalars',
    method: 'scalars_view',
    title: 'Scalars',
    summary: 'Loss and other numbers over steps',
    label: 'Open Loss and Other Scalars',
    command: 'megalens:open-scalars',
    group: 'statistics',
    together: 'training',
    offer: ['panel', 'palette'],
    needs: { streams: ['scalars'], flag: false },
    report: { order: 1 }
  },
  health: {
    name: 'health',
    method: 'health',
    title: 'Health',
    summary: 'The first thing that went wrong, and all alarms',
    label: 'Open Health of a Training',
    command: 'megalens:open-health',
    group: 'alarms',
    together: 'training',
    offer: ['panel', 'palette'],
    needs: {
      streams: ['alarms'],
      flag: false,
      absent: 'No alarms are judged. In the training script: megalens.monitor(model, optimizer)'
    },
    report: { order: 0 }
  },
  timeline: {
    name: 'timeline',
    method: 'timeline',
    title: 'Timeline',
    summary: 'What each rank does in a step, and who makes the others wait',
    label: 'Open Timeline of All Ranks',
    command: 'megalens:open-timeline',
    group: 'time',
    together: 'training',
    offer: ['panel', 'palette'],
    needs: {
      streams: ['spans'],
      flag: false,
      absent: 'No spans are recorded. In the training script: megalens.trace(model, timeline="phases")'
    },
    report: { order: 5 }
  },
  tokens: {
    name: 'tokens',
    method: 'tokens_view',
    title: 'Tokens',
    summary: 'What the model writes, and what else it could have written',
    label: 'Open Tokens',
    command: 'megalens:open-tokens',
    group: 'text',
    together: 'text',
    offer: ['panel', 'palette', 'launcher'],
    needs: {
      streams: ['tokens'],
      flag: false,
      absent: 'Nothing was generated. In a cell: lab = megalens.serve(model, tokenizer)'
    },
    report: { order: 6 }
  },
  attention: {
    name: 'attention',
    method: 'attention',
    title: 'Attention',
    summary: 'Which tokens each head looks at',
    label: 'Open Attention',
    command: 'megalens:open-attention',
    group: 'text',
    together: 'text',
    offer: ['panel', 'palette'],
    needs: {
      streams: ['tokens', 'tensors'],
      flag: false,
      absent:
        'No attention was traced. In a cell: lab = megalens.serve(model, tokenizer); lab.generate("…", attention=True)'
    },
    report: { order: 7 }
  },
  projection: {
    name: 'projection',
    method: 'projection',
    title: 'Projection',
    summary: 'Vectors of tokens as points of a plane',
    label: 'Open Projection of Vectors',
    command: 'megalens:open-projection',
    group: 'text',
    offer: ['panel', 'palette'],
    needs: {
      streams: ['tokens', 'tensors'],
      flag: true,
      absent: 'Nothing was generated. In a cell: lab = megalens.serve(model, tokenizer)'
    },
    report: { order: 8 }
  },
  lens: {
    name: 'lens',
    method: 'lens',
    title: 'Logit lens',
    summary: 'What each layer would predict',
    label: 'Open Logit Lens',
    command: 'megalens:open-lens',
    group: 'text',
    together: 'text',
    offer: ['panel', 'palette'],
    needs: {
      streams: ['lens'],
      flag: false,
      absent:
        'Nothing was generated. In a cell: lab = megalens.serve(model, tokenizer); lab.generate("…", lens=5)'
    },
    report: { order: 9 }
  },
  effects: {
    name: 'effects',
    method: 'effects',
    title: 'Perturbation effects',
    summary: 'What a perturbation changed, beside a clean control',
    label: 'Open Perturbation Effects',
    command: 'megalens:open-effects',
    group: 'text',
    offer: ['panel', 'palette'],
    needs: {
      streams: ['effects'],
      flag: false,
      absent:
        'Nothing was generated under a perturbation. In a cell: lab.generate("…", perturb=megalens.Noise1(0.1))'
    },
    report: { order: 10 }
  },
  pipeline: {
    name: 'pipeline',
    method: 'pipeline_plan',
    title: 'Pipeline',
    summary: 'What each pipeline stage does in a step, and which schedule would be faster',
    label: 'Open Pipeline Planner',
    command: 'megalens:open-pipeline',
    group: 'plans',
    offer: ['panel', 'palette'],
    needs: { streams: [], flag: false, absent: '' }
  },
  split: {
    name: 'split',
    method: 'split_plan',
    title: 'Split',
    summary: 'Forward and backward in different processes: which does what, and whether it is worth it',
    label: 'Open Split Planner',
    command: 'megalens:open-split',
    group: 'plans',
    offer: ['panel', 'palette'],
    needs: { streams: [], flag: false, absent: '' }
  }
};

/** Those that are part of the core; instruments bring the others. */
export const CORE_VIEWS: readonly ViewOptions['view'][] = [
  'overview',
  'heatmap',
  'trend',
  'history',
  'distribution',
  'statistics',
  'scalars'
];

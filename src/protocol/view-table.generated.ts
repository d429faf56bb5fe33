// Generated from protocol/views.schema.json by scripts/generate-protocol.mjs. Do not edit: run `npm run generate`.

import type { IViewInfo } from './view-info';
import type { ViewOptions } from './views.generated';

/** What is known of each view before its code is loaded, in the order in which views are offered. */
export const VIEWS: Readonly<Record<ViewOptions['view'], IViewInfo>> = {
  heatmap: {
    name: 'heatmap',
    method: 'heatmap',
    title: 'Heatmap',
    summary: 'One tensor, position by tile',
    label: 'Open Heatmap of a Traced Tensor',
    command: 'megalens:open-heatmap',
    icon: 'megalens:lens',
    offer: ['panel', 'palette'],
    needs: { streams: ['tensors'], flag: true, absent: 'Nothing is traced yet' },
    report: { order: 4, options: { layers: 'all' } }
  },
  trend: {
    name: 'trend',
    method: 'trend',
    title: 'Trend',
    summary: 'A statistic per layer over steps',
    label: 'Open Layer Trend',
    command: 'megalens:open-trend',
    icon: 'megalens:lens',
    offer: ['panel', 'palette'],
    needs: { streams: ['tensors'], flag: true, absent: 'Nothing is traced yet' },
    report: { order: 3 }
  },
  history: {
    name: 'history',
    method: 'history',
    title: 'History',
    summary: 'Layer by step, and the tensor at any of them',
    label: 'Open History of a Traced Tensor',
    command: 'megalens:open-history',
    icon: 'megalens:lens',
    offer: ['panel', 'palette'],
    needs: { streams: ['tensors'], flag: true, absent: 'Nothing is traced yet' }
  },
  moments: {
    name: 'moments',
    method: 'explore',
    title: 'Statistics',
    summary: 'Statistics of weights, gradients and activations, grouped as you like',
    label: 'Open Statistics of Weights, Gradients and Activations',
    command: 'megalens:open-moments',
    icon: 'megalens:lens',
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
    icon: 'megalens:lens',
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
    icon: 'megalens:lens',
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
    icon: 'megalens:lens',
    offer: ['panel', 'palette'],
    needs: {
      streams: ['spans'],
      flag: false,
      absent: 'No spans are recorded. In the training script: megalens.trace(model, timeline="phases")'
    },
    report: { order: 5 }
  }
};

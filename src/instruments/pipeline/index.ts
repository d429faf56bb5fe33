import type { IInstrumentSlice } from '../../slice';

/** Pipelines: what they measured, what a plan would change, and how a training is split over devices. */
export const slice: IInstrumentSlice = {
  name: 'pipeline',
  views: {
    pipeline: () => import('./views/pipeline-view'),
    split: () => import('./split/views/split-view')
  },
  jobs: {
    pipeline: async () => (await import('./engine/pipeline-job')).planPipeline,
    rank_map: async () => (await import('./engine/pipeline-job')).mapRanks,
    split: async () => (await import('./engine/pipeline-job')).planSplits
  },
  report: async () => (await import('./client/pipeline-api')).lookForReport
};

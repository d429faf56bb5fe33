/** Two stages, one chunk, one micro-batch, two steps of 10 ms: F on both, B on both, then the optimizer of stage 0. */
export const pipelineAnswer = (more: object = {}, operations: object = {}): Record<string, unknown> => ({
  steps_there: [1, 40],
  steps: [
    { step: 3, duration: 10 },
    { step: 4, duration: 10.5 }
  ],
  left: 2,
  stages: 2,
  chunks: 1,
  micro_batches: 1,
  placement: 'loop',
  replicas: 1,
  replica: 0,
  ranks: [0, 1],
  operations: {
    step: [3, 3, 3, 3, 3, 4],
    stage: [0, 0, 0, 1, 1, 0],
    rank: [0, 0, 0, 1, 1, 0],
    chunk: [0, 0, -1, 0, 0, 0],
    virtual_stage: [0, 0, -1, 1, 1, 0],
    kind: ['F', 'B', 'O', 'F', 'B', 'F'],
    micro_batch: [0, 0, -1, 0, 0, 0],
    begin_ms: [0, 7, 9.5, 2, 4, 0],
    end_ms: [2, 9, 10, 4, 6.5, 2],
    ...operations
  },
  problems: ['Rank 7 is missing.'],
  ...more
});

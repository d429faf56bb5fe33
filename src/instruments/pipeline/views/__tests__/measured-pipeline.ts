import { pipelineOf, type IPipelineSteps } from '../../client/pipeline-api';

/** An operation that was measured; ms since its step began. */
export type MeasuredRow = readonly [
  stage: number,
  kind: string,
  microBatch: number,
  begin: number,
  end: number
];

/** 1F1B on two stages with two micro-batches: forward passes of 10 ms, backward passes of 20 ms, nothing between them. */
const USUAL: readonly MeasuredRow[] = [
  [0, 'F', 0, 0, 10],
  [0, 'F', 1, 10, 20],
  [0, 'B', 0, 40, 60],
  [0, 'B', 1, 70, 90],
  [1, 'F', 0, 10, 20],
  [1, 'B', 0, 20, 40],
  [1, 'F', 1, 40, 50],
  [1, 'B', 1, 50, 70]
];

/** The same where the first backward pass of stage 1 takes 6 ms longer, for which stage 0 waits. */
const SLOW: readonly MeasuredRow[] = USUAL.map(([stage, kind, microBatch, begin, end]): MeasuredRow => {
  const later = stage === 0 ? (kind === 'B' ? 6 : 0) : begin >= 40 ? 6 : 0;
  return [stage, kind, microBatch, begin + later, end + later + (stage === 1 && begin === 20 ? 6 : 0)];
});

/** What the server answers of steps from the seventh on, as it stands in protocol/README.md: without arguments of such a run, the last step the slow one. */
export function measuredPipeline(
  steps: readonly (readonly MeasuredRow[])[] = [USUAL, USUAL, SLOW],
  durations: readonly number[] = [90, 90, 90],
  stages = 2
): IPipelineSteps {
  const rows = steps.flatMap((each, at) => each.map(row => [at + 7, ...row] as const));
  const column = (place: number): unknown[] => rows.map(row => row[place]);
  const answer = pipelineOf({
    steps_there: [1, 9],
    steps: steps.map((_, at) => ({ step: at + 7, duration: durations[at] })),
    left: 0,
    stages,
    chunks: 1,
    micro_batches: 2,
    placement: 'loop',
    replicas: 1,
    replica: 0,
    ranks: Array.from({ length: stages }, (_, rank) => rank),
    problems: [],
    operations: {
      step: column(0),
      stage: column(1),
      rank: column(1),
      chunk: rows.map(() => 0),
      virtual_stage: column(1),
      kind: column(2),
      micro_batch: column(3),
      begin_ms: column(4),
      end_ms: column(5)
    }
  });
  if (answer === null) {
    throw new Error('Expected steps and got none.');
  }
  return answer;
}

/** The same without pipeline: one process that runs one micro-batch a step, forward in 12 ms and backward in 24. */
export function measuredWhole(): IPipelineSteps {
  const rows: readonly MeasuredRow[] = [
    [0, 'F', 0, 0, 12],
    [0, 'B', 0, 12, 36]
  ];
  const whole = measuredPipeline([rows]);
  return { ...whole, stages: 1, microBatches: 1, ranks: [0] };
}

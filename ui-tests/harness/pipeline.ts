import type { IPipelineSteps, PipelineKind } from '../../src/instruments/pipeline/client/pipeline-api';
import { KINDS, makePlan, shapeOf, simulatePlan, timesFor } from '../../src/instruments/pipeline/plan';

/** Five steps of a pipeline of 4 stages and 8 micro-batches that runs 1F1B, stage 2 a fifth slower than the others: what the server would answer. */
export function syntheticPipeline(): IPipelineSteps {
  const shape = shapeOf('1f1b', { stages: 4, micro_batches: 8, chunks: 1 });
  const base = [10, 10, 12, 10];
  const columns: Record<string, (number | string)[]> = {};
  const put = (row: Record<string, number | string>): void =>
    Object.entries(row).forEach(([name, value]) => (columns[name] ??= []).push(value));
  for (let step = 20; step < 25; step += 1) {
    const times = {
      forward: base.map((ms, stage) => ms * (1 + 0.02 * Math.sin(7 * step + stage))),
      optimizer: 4,
      latency: 0.6
    };
    const plan = makePlan('1f1b', shape, timesFor(times, shape));
    const { table, begin, end, done } = simulatePlan(plan, times);
    for (let at = 0; at < table.count; at += 1) {
      const stage = table.stage(at);
      put({
        step,
        stage,
        rank: stage,
        chunk: 0,
        virtualStage: stage,
        kind: KINDS[table.kind[at] ?? 0] ?? 'F',
        microBatch: table.microBatch[at] ?? 0,
        begin: begin[at] ?? 0,
        end: end[at] ?? 0
      });
    }
    for (let stage = 0; stage < 4; stage += 1) {
      const after = done[stage] ?? 0;
      put({
        step,
        stage,
        rank: stage,
        chunk: -1,
        virtualStage: -1,
        kind: 'O',
        microBatch: -1,
        begin: after - 4,
        end: after
      });
    }
  }
  const numbers = (name: string): number[] => (columns[name] ?? []) as number[];
  return {
    there: [1, 24],
    steps: [20, 21, 22, 23, 24].map(step => ({ step, duration: 290 })),
    left: 0,
    stages: 4,
    chunks: 1,
    microBatches: 8,
    placement: 'loop',
    replicas: 1,
    replica: 0,
    ranks: [0, 1, 2, 3],
    operations: {
      step: numbers('step'),
      stage: numbers('stage'),
      rank: numbers('rank'),
      chunk: numbers('chunk'),
      virtualStage: numbers('virtualStage'),
      kind: (columns['kind'] ?? []) as PipelineKind[],
      microBatch: numbers('microBatch'),
      begin: numbers('begin'),
      end: numbers('end')
    },
    problems: []
  };
}

/** @jest-environment ./jest.environment.node.js */
import type { IPipelineSteps, PipelineKind } from '../../../client/pipeline-api';
import type { SplitLayout } from '../../protocol/split.generated';
import { measuredSplit } from '../measured-split';
import { plannedSplit, type ISplitPlanned } from '../planned-split';
import { fullSplitRequest } from '../split-request';
import { SplitSimulation } from '../split-simulation';
import { splitRequestOf } from '../partial-request';

/** What would be measured of a simulated step: lanes as stages, what is done again as F. */
function measuredOf({ lanes, operations, stepMs }: ISplitPlanned): IPipelineSteps {
  const { lane, kind, microBatch, begin, end } = operations;
  const kept = kind.flatMap((each, at) => (each === 'W' ? [] : [at]));
  const pick = <T>(column: readonly T[]): T[] => kept.map(at => column[at]!);
  const none = kept.map(() => 0);
  return {
    there: [1, 1],
    steps: [{ step: 1, duration: stepMs }],
    left: 0,
    stages: lanes.length,
    chunks: 1,
    microBatches: Math.max(...microBatch) + 1,
    placement: 'loop',
    replicas: 1,
    replica: 0,
    ranks: lanes.map((_, at) => at),
    operations: {
      step: none.map(() => 1),
      stage: pick(lane),
      rank: pick(lane),
      chunk: none,
      virtualStage: pick(lane),
      kind: pick(kind).map((each): PipelineKind => (each === 'R' ? 'F' : each === 'W' ? 'O' : each)),
      microBatch: pick(microBatch),
      begin: pick(begin),
      end: pick(end)
    },
    problems: []
  };
}

const request = fullSplitRequest({
  devices: [
    { name: 'forward', count: 3, forward: 6, recompute: 6, backward: 20 },
    { name: 'backward', count: 3, forward: 3, recompute: 3, backward: 10, optimizer: 2 }
  ],
  layers: [1, 2, 3],
  micro_batches: 5,
  latency: 0.5
});

const layoutOf = (family: 'pipeline' | 'split', lastForward = true): SplitLayout => ({
  family,
  data: 1,
  tensor: 1,
  stages: [0, 1, 2].map(stage => ({
    device: 1,
    layers: 1,
    ...(family === 'split' ? { forward_device: stage < 2 || lastForward ? 0 : null } : {})
  }))
});

describe('a measured run', () => {
  it.each([true, false])(
    'that is split is planned again as it ran, last forward process: %s',
    lastForward => {
      const ran = plannedSplit(new SplitSimulation(request), layoutOf('split', lastForward));
      const measured = measuredSplit(measuredOf(ran))!;
      expect(measured).toMatchObject({ isSplit: true, stages: 3, lastForward, microBatches: 5, steps: 1 });
      expect(measured.latencyMs).toBeCloseTo(0.5);
      expect(measured.lanes.map(({ role }) => role)).toEqual(ran.lanes.map(({ role }) => role));
      const asked = fullSplitRequest(splitRequestOf({}, measured));
      const again = plannedSplit(new SplitSimulation(asked), asked.layout!);
      expect(again.stepMs).toBeCloseTo(ran.stepMs, 6);
    }
  );

  it('is planned by the mean of passes that share a core at times, and as far ahead as it recomputed', () => {
    const ran = plannedSplit(new SplitSimulation({ ...request, ahead: 3 }), layoutOf('split'));
    const steps = measuredOf(ran);
    const { kind, stage, begin, end, microBatch } = steps.operations;
    // The first two of five forward passes of the first process take 5 ms more: 2 ms on average.
    const slow = end.map((each, at) =>
      kind[at] === 'F' && stage[at] === 0 && microBatch[at]! < 2 ? each + 5 : each
    );
    const measured = measuredSplit({ ...steps, operations: { ...steps.operations, end: slow } })!;
    expect(measured.ahead).toBe(3);
    expect(fullSplitRequest(splitRequestOf({}, measured)).ahead).toBe(3);
    expect(measured.lanes[0]?.forwardMs).toBeCloseTo(end[0]! - begin[0]! + 2);
  });

  it('that is a pipeline has processes that do both', () => {
    const ran = plannedSplit(new SplitSimulation(request), layoutOf('pipeline'));
    const measured = measuredSplit(measuredOf(ran))!;
    expect(measured).toMatchObject({ isSplit: false, stages: 3, lastForward: false });
    const asked = fullSplitRequest(splitRequestOf({}, measured));
    expect(asked.layout?.family).toBe('pipeline');
    expect(plannedSplit(new SplitSimulation(asked), asked.layout!).stepMs).toBeCloseTo(ran.stepMs, 6);
  });

  it('gives way to a wish, and to a default where there is none', () => {
    const ran = plannedSplit(new SplitSimulation(request), layoutOf('split'));
    const requested = splitRequestOf({ micro_batches: 8, ahead: 2 }, measuredSplit(measuredOf(ran)));
    expect(requested).toMatchObject({ micro_batches: 8, ahead: 2 });
    expect(requested.layout).toBeUndefined();
    expect(measuredSplit(null)).toBeNull();
    expect(fullSplitRequest(splitRequestOf({}, null)).devices).toHaveLength(2);
  });
});

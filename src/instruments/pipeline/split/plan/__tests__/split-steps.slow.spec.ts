/** @jest-environment ./jest.environment.node.js */
import type { SplitFamily, SplitLayout } from '../../protocol/split.generated';
import { isApart, SPLIT_FAMILIES, fullSplitRequest } from '../split-request';
import { laneOrder, type IOrderShape, plannedSplit } from '../planned-split';
import { orderProof } from './order-proof';
import { SplitSimulation } from '../split-simulation';

const key = (kind: string, stage: number, microBatch: number): string => `${stage}${kind}${microBatch}`;

/** The processes of a family, and what a pass of each waits for on other processes. */
const roles = (family: SplitFamily) =>
  isApart(family) ? (['forward', 'backward'] as const) : (['both'] as const);
function sender(family: SplitFamily, kind: string, stage: number, microBatch: number, shape: IOrderShape) {
  const { stages, microBatches } = shape;
  if (kind === 'B') {
    return stage + 1 < stages ? key('B', stage + 1, microBatch) : null;
  }
  if (kind === 'R' && family === 'megafbd') {
    return key('F', stage, Math.min(microBatches - 1, microBatch + stages - 1 - stage));
  }
  return stage > 0 && (kind === 'F' || isApart(family)) ? key('F', stage - 1, microBatch) : null;
}

describe.each(SPLIT_FAMILIES)('the order of %s', family => {
  it('cannot deadlock: in its proof no pass waits for a later one, and none is lacking', () => {
    const wrong: string[] = [];
    for (let stages = 1; stages <= 4; stages += 1) {
      for (let microBatches = 1; microBatches <= 6; microBatches += 1) {
        for (const ahead of [1, 2, 3, 7]) {
          const shape = { family, stages, microBatches, ahead };
          const proof = orderProof(shape);
          const place = new Map(proof.map((each, at) => [key(each.kind, each.stage, each.microBatch), at]));
          let count = 0;
          for (const role of roles(family)) {
            for (let stage = 0; stage < stages; stage += 1) {
              let before = -1;
              for (const { kind, microBatch } of laneOrder({ role, stage }, shape)) {
                const at = place.get(key(kind, stage, microBatch))!;
                const other = sender(family, kind, stage, microBatch, shape);
                const isLater = at > before && (other === null || place.get(other)! < at);
                if (!isLater) {
                  wrong.push(`${key(kind, stage, microBatch)} of ${JSON.stringify(shape)}`);
                }
                before = at;
                count += 1;
              }
            }
          }
          if (place.size !== proof.length || count !== proof.length) {
            wrong.push(
              `${place.size} places and ${count} passes of ${proof.length}, ${JSON.stringify(shape)}`
            );
          }
        }
      }
    }
    // Gathered: as many expectations take longer than all these orders.
    expect(wrong).toEqual([]);
  });
});

const request = (more: object = {}) =>
  fullSplitRequest({
    devices: [
      { name: 'fast', count: 40, forward: 4, recompute: 5, backward: 11, optimizer: 2, memory_bytes: 1e9 },
      { name: 'slow', count: 40, forward: 9, recompute: 12, backward: 30, optimizer: 6, memory_bytes: 1e9 }
    ],
    layers: [1, 2, 3, 1, 2],
    micro_batches: 6,
    latency: 0.25,
    bandwidth: 10,
    message_bytes: 3,
    activation_bytes: 100,
    weight_bytes: 40,
    state_bytes: 160,
    tensor_ms: 0.5,
    ahead: 2,
    ...more
  });

const layoutOf = (family: SplitFamily, more: Partial<SplitLayout> = {}): SplitLayout => {
  const cut = family === 'ordinary' || family === 'recompute' ? [5] : [2, 1, 2];
  return {
    family,
    data: 1,
    tensor: 1,
    stages: cut.map((layers, at) => ({
      device: at % 2,
      layers,
      ...(isApart(family) ? { forward_device: (at + 1) % 2 } : {})
    })),
    ...more
  };
};

describe('a simulated step', () => {
  it.each(SPLIT_FAMILIES)(
    'of %s begins each pass as soon as its process is free and its message is there',
    family => {
      for (const ahead of [1, 2, 9]) {
        const full = request({ ahead });
        const { operations, lanes } = plannedSplit(new SplitSimulation(full), layoutOf(family));
        const { lane, kind, microBatch, begin, end } = operations;
        const stages = layoutOf(family).stages.length;
        const shape = { family, stages, microBatches: 6, ahead };
        const ends = new Map(
          kind.map((each, at) => [key(each, lanes[lane[at]!]!.stage, microBatch[at]!), end[at]!])
        );
        const links = new Map<string, number>();
        kind.forEach((each, at) => {
          if (!'FRB'.includes(each)) {
            return;
          }
          const { stage, role } = lanes[lane[at]!]!;
          const isOwnAgain = each === 'R' && role === 'both';
          const from = isOwnAgain ? null : sender(family, each, stage, microBatch[at]!, shape);
          const free = lane[at - 1] === lane[at] ? end[at - 1]! : 0;
          let there = 0;
          if (from !== null) {
            const link = `${each} ${stage}`;
            const sent = Math.max(links.get(link) ?? 0, ends.get(from)!) + 3 / 10;
            links.set(link, sent);
            there = sent + 0.25;
          }
          expect(begin[at]).toBeCloseTo(Math.max(free, there), 9);
        });
      }
    }
  );

  it('takes what can be counted by hand', () => {
    const full = request({ micro_batches: 4, latency: 0, bandwidth: null, tensor_ms: 0, ahead: 1 });
    const simulation = new SplitSimulation(full);
    const step = (layout: SplitLayout): number => plannedSplit(simulation, layout).stepMs;
    // Four micro-batches of 5 + 11 ms, and the optimizer; done again they take 4 ms more.
    expect(step(layoutOf('ordinary'))).toBeCloseTo(4 * 16 + 2);
    expect(step(layoutOf('recompute'))).toBeCloseTo(4 * 20 + 2);
    expect(step(layoutOf('ordinary', { data: 2, tensor: 2 }))).toBeCloseTo((2 * 16 + 2) / 2);
    // One stage: its forward process is of no use, and its backward process does the rest.
    expect(step(layoutOf('split', { stages: [{ device: 0, layers: 5, forward_device: 1 }] }))).toBeCloseTo(
      66
    );
  });

  it('sends new weights to forward processes, and sums gradients over replicas', () => {
    const layout = layoutOf('split', { data: 2, tensor: 2, forward_tensor: 1 });
    const { operations, sentBytes, devices, stepMs } = plannedSplit(new SplitSimulation(request()), layout);
    const of = (what: string) => operations.kind.flatMap((kind, at) => (kind === what ? [at] : []));
    const took = (at: number): number => operations.end[at]! - operations.begin[at]!;
    // A third of the weights, shared by two: a ring of two replicas, then the optimizer.
    expect(took(of('O')[0]!)).toBeCloseTo((2 * 0.5 * (40 / 3 / 2)) / 10 + 2 * 0.25 + 2 / 3 / 2);
    expect(took(of('W')[0]!)).toBeCloseTo(40 / 3 / 10 + 0.25);
    expect(devices).toEqual([2 * (2 + 1 + 2), 2 * (1 + 2 + 1)]);
    // Messages: 2 to forward, 2 to backward processes, 2 gradients; sums; new weights.
    expect(sentBytes).toBe(2 * 3 * 6 * 3 + 2 * 40 + 2 * 40);
    expect(stepMs).toBeCloseTo(Math.max(...operations.end));
  });

  it('holds what is under way: of a pipeline by stage, of a split as many as are recomputed ahead', () => {
    const simulation = new SplitSimulation(request());
    const share = [3 / 9, 3 / 9, 3 / 9];
    expect(plannedSplit(simulation, layoutOf('pipeline')).peakBytes).toEqual(
      share.map((each, stage) => expect.closeTo(each * (160 + (3 - stage) * 100)))
    );
    expect(plannedSplit(simulation, layoutOf('pipeline_recompute')).peakBytes).toEqual(
      share.map((each, stage) => expect.closeTo(each * 260 + (stage > 0 ? (3 - stage) * 3 : 0)))
    );
    const split = plannedSplit(simulation, layoutOf('split')).peakBytes;
    expect(split.slice(0, 4)).toEqual(
      [...share.map(each => each * 40 + 6), (160 + 200) / 3].map(each => expect.closeTo(each))
    );
    expect(split[4]).toBeGreaterThanOrEqual(360 / 3 + 3);
  });

  it('of many micro-batches is worked out from few within 1 %', () => {
    const simulation = new SplitSimulation(request({ micro_batches: 4000 }));
    for (const family of SPLIT_FAMILIES) {
      const { stepMs } = simulation.cost(layoutOf(family));
      simulation.run(layoutOf(family));
      expect(stepMs / simulation.stepMs).toBeCloseTo(1, 2);
    }
  });
});

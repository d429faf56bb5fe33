/** @jest-environment ./jest.environment.node.js */
import type { Plan } from '../../protocol/pipeline.generated';
import { checkPlan } from '../check-plan';
import { MADE_SCHEDULES, makePlan, shapeOf, type MadeSchedule } from '../make-plan';
import { peakMemory, timesFor } from '../memory';
import { PlanError } from '../plan-shape';

const EVEN = { forward: 1 };

function planOf(name: MadeSchedule, stages: number, micro_batches: number, chunks = 2): Plan {
  const shape = shapeOf(name, { stages, micro_batches, chunks });
  return makePlan(name, shape, timesFor(EVEN, shape));
}

/** A range of one chunk's passes: F of micro-batches 0 to 7 of virtual stage 4 is `run(4, 'F')`. */
function run(virtual: number, kind: string): string {
  return [0, 1, 2, 3, 4, 5, 6, 7].map(microBatch => `${virtual}${kind}${microBatch}`).join(' ');
}

describe('schedules', () => {
  it('1F1B runs as many forward passes ahead as there are stages behind', () => {
    expect(planOf('1f1b', 3, 4).order).toEqual([
      '0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3',
      '1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3',
      '2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3'
    ]);
  });

  it('interleaved 1F1B is the order that Megatron-LM ran, in a trace of 4 stages, 4 chunks and 8 micro-batches', () => {
    const { order } = planOf('interleaved_1f1b', 4, 8, 4);
    expect(order[0]).toBe(
      '0F0 0F1 0F2 0F3 4F0 4F1 4F2 4F3 8F0 8F1 8F2 8F3 12F0 12F1 12F2 12F3 0F4 0F5 0F6 12B0 0F7 12B1 4F4 12B2 4F5 12B3 4F6 8B0 4F7 8B1 8F4 8B2 ' +
        '8F5 8B3 8F6 4B0 8F7 4B1 12F4 4B2 12F5 4B3 12F6 0B0 12F7 0B1 0B2 0B3 12B4 12B5 12B6 12B7 8B4 8B5 8B6 8B7 4B4 4B5 4B6 4B7 0B4 0B5 0B6 0B7'
    );
    expect(order[3]).toBe(
      '3F0 3F1 3F2 3F3 7F0 7F1 7F2 7F3 11F0 11F1 11F2 11F3 15F0 15B0 15F1 15B1 15F2 15B2 15F3 15B3 3F4 11B0 3F5 11B1 3F6 11B2 3F7 11B3 7F4 7B0 7F5 7B1 ' +
        '7F6 7B2 7F7 7B3 11F4 3B0 11F5 3B1 11F6 3B2 11F7 3B3 15F4 15B4 15F5 15B5 15F6 15B6 15F7 15B7 11B4 11B5 11B6 11B7 7B4 7B5 7B6 7B7 3B4 3B5 3B6 3B7'
    );
  });

  it("MegaDPP's rule gives the order that MegatronApp ran, from the mean times of that trace", () => {
    const shape = shapeOf('megadpp', { stages: 4, micro_batches: 8, chunks: 4 });
    const compute = Array.from({ length: 16 }, (_, virtual) => [7.1, 6.3, 6.3, 10.4][virtual % 4]!);
    const links = [
      [0, 1, 10.5],
      [1, 2, 8.1],
      [2, 3, 39.6],
      [3, 0, 19.1],
      [3, 2, 22.7],
      [2, 1, 7.8],
      [1, 0, 5.5],
      [0, 3, 57.3]
    ].map(([from, to, latency]) => ({ from: from!, to: to!, latency: latency! }));
    const half = compute.map(ms => ms / 2);
    const times = timesFor({ forward: compute, input_gradient: half, weight_gradient: half, links }, shape);
    const { order } = makePlan('megadpp', shape, times);
    for (const stage of [0, 1, 2]) {
      const chunks = [0, 4, 8, 12].map(first => first + stage);
      expect(order[stage]).toBe(
        [
          ...chunks.map(virtual => run(virtual, 'F')),
          ...chunks.reverse().map(virtual => run(virtual, 'B'))
        ].join(' ')
      );
    }
    const alternating = '15F0 15B0 15F1 15B1 15F2 15B2 15F3 15B3 15F4 15B4 15F5 15B5 15F6 15B6 15F7 15B7';
    expect(order[3]).toBe(
      [run(3, 'F'), run(7, 'F'), run(11, 'F'), alternating, run(11, 'B'), run(7, 'B'), run(3, 'B')].join(' ')
    );
  });

  it('breadth-first runs all forward passes of a chunk before the next chunk', () => {
    expect(planOf('breadth_first', 2, 3).order[0]).toBe('0F0 0F1 0F2 2F0 2F1 2F2 2B0 2B1 2B2 0B0 0B1 0B2');
  });

  it('keeps the activations that the authors of a schedule say', () => {
    const peaks = (name: MadeSchedule): number[] => {
      const plan = planOf(name, 4, 16);
      return [...peakMemory(checkPlan(plan), timesFor({ ...EVEN, activation_bytes: 2 }, plan))].map(
        bytes => bytes / 2
      );
    };
    expect(peaks('gpipe')).toEqual([16, 16, 16, 16]);
    expect(peaks('1f1b')).toEqual([4, 3, 2, 1]);
    expect(peaks('zb_h1')).toEqual([4, 4, 4, 4]);
    expect(peaks('zb_h2')).toEqual([7, 7, 7, 7]);
    expect(Math.max(...peaks('zb_v'))).toBeLessThanOrEqual(4);
    expect(Math.max(...peaks('dualpipe'))).toBe(5);
    expect(Math.max(...peaks('dualpipev'))).toBe(4.5);
  });

  it.each([
    [
      'interleaved_1f1b',
      { stages: 4, micro_batches: 10, chunks: 2 },
      'a multiple of its 4 stages, got 10. Try 12.'
    ],
    ['megadpp', { stages: 3, micro_batches: 4, chunks: 2 }, 'a multiple of its 3 stages, got 4. Try 6.'],
    ['dualpipe', { stages: 3, micro_batches: 8, chunks: 2 }, 'an even number of stages, got 3.'],
    [
      'dualpipe',
      { stages: 4, micro_batches: 9, chunks: 2 },
      'an even number of micro-batches, got 9. Try 10.'
    ],
    ['dualpipe', { stages: 4, micro_batches: 6, chunks: 2 }, 'at least 8 micro-batches'],
    ['dualpipev', { stages: 4, micro_batches: 7, chunks: 2 }, 'at least 8 micro-batches']
  ] as const)('%s names the numbers that do not fit: %j', (name, numbers, words) => {
    const make = (): unknown => shapeOf(name, numbers);
    expect(make).toThrow(PlanError);
    expect(make).toThrow(words);
  });

  it('takes any numbers that fit, down to one stage and one micro-batch', () => {
    let count = 0;
    for (const name of MADE_SCHEDULES) {
      for (let stages = 1; stages <= 6; stages += 1) {
        for (const microBatches of [1, 2, 3, 4, 5, 6, 8, 10, 12]) {
          for (const chunks of [1, 2, 3]) {
            try {
              shapeOf(name, { stages, micro_batches: microBatches, chunks });
            } catch {
              continue;
            }
            checkPlan(planOf(name, stages, microBatches, chunks));
            count += 1;
          }
        }
      }
    }
    expect(count).toBeGreaterThan(1300);
  });
});

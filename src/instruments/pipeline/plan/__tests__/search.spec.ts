/** @jest-environment ./jest.environment.node.js */
import type { PipelineTimes, Plan, PlanRequest } from '../../protocol/pipeline.generated';
import { SeededRandom } from '../../../../protocol/seeded-random';
import { checkPlan } from '../check-plan';
import { peakMemory, timesFor } from '../memory';
import { planAll, simulatePlan } from '../plan-all';
import type { PlanError, IPlanShape } from '../plan-shape';
import { searchShape } from '../search';
import { Simulation } from '../simulation';
import { enumerated, exhaustive } from './exhaustive';
import { finish } from './finish';

const random = new SeededRandom(7);

interface ISmall {
  readonly shape: IPlanShape;
  readonly times: PipelineTimes;
  readonly memoryBytes: number;
}

/** A small case: any times, with and without links, optimizers and memory limits. */
function small(sizes: readonly (readonly [number, number, number])[]): ISmall {
  const [stages, micro_batches, chunks] = sizes[random.below(sizes.length)]!;
  const placement = chunks === 2 && random.below(2) === 0 ? 'v' : 'loop';
  const list = (): number[] => Array.from({ length: stages * chunks }, () => 1 + random.below(9));
  return {
    shape: { stages, chunks, micro_batches, placement },
    times: {
      forward: list(),
      input_gradient: list(),
      weight_gradient: list(),
      optimizer: random.below(4),
      latency: random.below(3),
      bandwidth: random.below(2) === 0 ? null : 0.5,
      message_bytes: random.below(3),
      activation_bytes: chunks,
      weight_gradient_bytes: random.below(2) === 0 ? chunks : chunks / 2
    },
    memoryBytes: [Infinity, chunks, 2 * chunks][random.below(3)]!
  };
}

function searched({ shape, times, memoryBytes }: ISmall): { plan: Plan; step: number } {
  const plan = finish(searchShape(shape, { ...shape, times, memoryBytes, seed: 1, effort: 400 }));
  expect(Math.max(...peakMemory(checkPlan(plan), timesFor(times, shape)))).toBeLessThanOrEqual(
    memoryBytes + 1e-6
  );
  return { plan, step: simulatePlan(plan, times).nominalMs };
}

const gpt = (request: Partial<PlanRequest> = {}): PlanRequest => ({
  stages: 4,
  micro_batches: 8,
  times: {
    forward: [4, 5, 4, 6],
    input_gradient: [4, 5, 5, 6],
    weight_gradient: [3, 4, 3, 5],
    optimizer: 1,
    latency: 0.2,
    activation_bytes: 1e9,
    weight_gradient_bytes: 5e8,
    weight_bytes: 4e9
  },
  effort: 200,
  ...request
});

describe('the search', () => {
  it('the reference itself finds what trying every order finds', () => {
    for (let round = 0; round < 6; round += 1) {
      const { shape, times, memoryBytes } = small([round % 3 === 0 ? [3, 2, 1] : [2, 2, 1]]);
      const own = timesFor(times, shape);
      expect(exhaustive(shape, own, memoryBytes, Infinity)).toBeCloseTo(
        enumerated(shape, own, memoryBytes),
        9
      );
    }
  });

  it('is within 1 % of the best of all orders on small cases', () => {
    for (let round = 0; round < 30; round += 1) {
      const each = small([
        [2, 2, 1],
        [2, 3, 1],
        [2, 4, 1],
        [3, 2, 1],
        [3, 3, 1],
        [4, 2, 1],
        [2, 2, 2]
      ]);
      const { step } = searched(each);
      const best = exhaustive(each.shape, timesFor(each.times, each.shape), each.memoryBytes, Infinity);
      expect(step).toBeLessThanOrEqual(best * 1.01);
    }
  });

  it('is never longer than another schedule with one copy of the model that is within the limit', async () => {
    for (const memory_bytes of [null, 9e9, 7e9, 5.5e9]) {
      const outcomes = await planAll(gpt({ memory_bytes }));
      const steps = outcomes.map(each =>
        'refused' in each || each.overMemoryBytes > 0 ? Infinity : each.nominalMs
      );
      expect(outcomes.at(-1)?.schedule).toBe('search');
      expect(steps.at(-1)).toBeLessThanOrEqual(Math.min(...steps) + 1e-9);
    }
  });

  it('gives the same plan for the same seed', async () => {
    const [one, same] = await Promise.all([1, 2].map(() => planAll(gpt({ schedules: ['search'], seed: 5 }))));
    expect(one).toHaveLength(1);
    expect(same![0]).toMatchObject({ plan: 'plan' in one![0]! ? one![0].plan : null });
  });

  it('says which stage cannot hold one micro-batch, and reports the schedules that exceed the limit', async () => {
    const outcomes = await planAll(gpt({ memory_bytes: 4.5e9, schedules: ['1f1b', 'search'] }));
    expect(outcomes[0]).toMatchObject({ schedule: '1f1b', overMemoryBytes: 3.5e9 });
    const { refused } = outcomes[1] as { refused: PlanError };
    expect(refused).toMatchObject({ code: 'memory', stage: 0 });
    expect(refused.message).toBe(
      'Stage 0 needs 5 GB for its weights and one micro-batch, got a limit of 4.5 GB. Try more stages, or to compute activations again.'
    );
  });

  it('moves nothing of a plan that cannot be better', () => {
    const shape: IPlanShape = { stages: 1, chunks: 1, micro_batches: 3, placement: 'loop' };
    const { plan, step } = searched({ shape, times: { forward: 2 }, memoryBytes: Infinity });
    expect(step).toBe(18);
    expect(new Simulation(checkPlan(plan), timesFor({ forward: 2 }, shape)).run()).toBe(18);
  });
});

describe('planning several schedules', () => {
  it('names the member of a request that is wrong', async () => {
    await expect(planAll({ ...gpt(), stages: 0 })).rejects.toMatchObject({
      code: 'request',
      field: 'stages'
    });
    await expect(planAll({ ...gpt(), times: {} })).rejects.toMatchObject({ code: 'request', field: 'times' });
    await expect(planAll(gpt({ times: { forward: 1, links: [{ from: 0, to: 4 }] } }))).rejects.toMatchObject({
      field: 'times.links.0'
    });
  });

  it('gives back what does not fit with its reason, and the rest', async () => {
    const own: Plan = {
      schedule: 'mine',
      stages: 1,
      chunks: 1,
      micro_batches: 1,
      placement: 'loop',
      order: ['0B0 0F0']
    };
    const outcomes = await planAll(
      gpt({ micro_batches: 6, schedules: ['interleaved_1f1b', 'dualpipe', 'gpipe'], plan: own })
    );
    expect(
      outcomes.map(each => ('refused' in each ? [each.schedule, each.refused.code] : each.schedule))
    ).toEqual([['mine', 'order'], ['interleaved_1f1b', 'fit'], ['dualpipe', 'fit'], 'gpipe']);
  });

  it('can be ended between slices, and tells how far it is', async () => {
    const controller = new AbortController();
    const told: string[] = [];
    const work = planAll(gpt({ effort: 100_000, schedules: ['1f1b', 'search'] }), {
      signal: controller.signal,
      progress: (done, total, words) => told.push(`${done}/${total} ${words}`),
      breathe: async () => {
        if (told.length === 2) {
          controller.abort(new Error('enough'));
        }
      }
    });
    await expect(work).rejects.toThrow('enough');
    expect(told).toEqual(['0/2 1F1B', '1/2 Search']);
  });
});

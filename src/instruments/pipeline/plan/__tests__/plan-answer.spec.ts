/** @jest-environment ./jest.environment.node.js */
import { readFileSync } from 'fs';
import type { PlanRequest } from '../../protocol/pipeline.generated';
import { bestOf, runnerUp, planAll } from '../plan-all';
import { planAnswer, type PlanAnswer } from '../../engine/pipeline-job';
import { expectGolden } from './golden-answers';

const GOLDEN = 'protocol/fixtures/planned.json';

const times = {
  forward: [2, 3],
  input_gradient: [2, 2.5],
  weight_gradient: [1, 2],
  optimizer: 0.5,
  latency: 0.1,
  bandwidth: 4e5,
  message_bytes: 1e5,
  links: [{ from: 1, to: 0, latency: 0.3 }],
  activation_bytes: 1e6,
  weight_gradient_bytes: 4e5,
  weight_bytes: 5e6
};

const REQUESTS: Record<string, PlanRequest> = {
  'every schedule that fits': { stages: 2, micro_batches: 4, times: { ...times, jitter: 0.05 }, effort: 200 },
  'a memory limit': {
    schedules: ['gpipe', 'zb_h1', 'search'],
    stages: 2,
    micro_batches: 3,
    times,
    memory_bytes: 7e6,
    seed: 3,
    effort: 300
  },
  'what does not fit': {
    schedules: ['interleaved_1f1b', 'dualpipe', 'search'],
    plan: {
      schedule: 'mine',
      stages: 2,
      chunks: 1,
      micro_batches: 2,
      placement: 'loop',
      order: ['0F0 0B0 0F1 0B1', '1F1 1B1 1F0 1B0']
    },
    stages: 2,
    micro_batches: 3,
    times,
    memory_bytes: 5.5e6
  }
};

describe('what the engine answers', () => {
  it('is what the golden answers say, to the last digit', () =>
    expectGolden(GOLDEN, REQUESTS, async request => planAnswer(await planAll(request))));

  it('names the shortest step within the limit as the best, and none where all are refused', () => {
    const golden = JSON.parse(readFileSync(GOLDEN, 'utf-8')) as Record<string, { answer: PlanAnswer }>;
    const { schedules, best } = golden['a memory limit']!.answer;
    const steps = schedules.map(each =>
      'refused' in each || each.over_memory_bytes > 0 ? Infinity : each.step_ms
    );
    expect(steps[best!]).toBe(Math.min(...steps));
    expect(steps.filter(step => step < Infinity).length).toBeGreaterThan(0);
    expect(golden['what does not fit']!.answer.best).toBeNull();
  });

  it.each([
    ['the shorter steady period', {}, 'zb_h2', 'zb_h1'],
    ['what is within the memory limit', { memory_bytes: 4e8 }, 'zb_h1', null],
    ['less memory where the periods are alike', { schedules: ['gpipe', '1f1b'] }, '1f1b', 'gpipe']
  ] as const)('of steps that are as long takes %s', async (_, rest, first, second) => {
    const made = await planAll({
      stages: 4,
      micro_batches: 8,
      times: { forward: 0.1, input_gradient: 0.1, weight_gradient: 0.1, activation_bytes: 1e8 },
      ...rest,
      schedules: 'schedules' in rest ? [...rest.schedules] : ['zb_h1', 'zb_h2']
    });
    const best = bestOf(made)!;
    expect(best.schedule).toBe(first);
    expect(planAnswer(made).best).toBe(made.indexOf(best));
    const others = made.flatMap(each => ('refused' in each ? [] : [each]));
    expect(runnerUp(best, others)?.schedule ?? null).toBe(second);
  });
});

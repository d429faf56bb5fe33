/** @jest-environment ./jest.environment.node.js */
import type { PipelineTimes, Plan } from '../../protocol/pipeline.generated';
import { SeededRandom } from '../../../../protocol/seeded-random';
import { compare, verdict, simulatePlan } from '../plan-all';
import { makePlan, shapeOf, type MadeSchedule } from '../make-plan';
import { KINDS } from '../plan-shape';
import type { IPlanned } from '../check-plan';
import { shareOut, timesFor } from '../memory';
import { type IMeasured, timesFromMeasured } from '../measured-run';

const TIMES: PipelineTimes = {
  forward: [4, 5, 6],
  input_gradient: [3, 4, 5],
  weight_gradient: [2, 3, 4],
  optimizer: [1, 2, 3],
  latency: 0.5
};

function planOf(name: MadeSchedule, all: PipelineTimes = TIMES, stages = 3, micro_batches = 6): Plan {
  const shape = shapeOf(name, { stages, micro_batches, chunks: 2 });
  return makePlan(name, shape, timesFor(all, shape));
}

/** What would be measured of simulated steps, by a clock that starts anywhere. */
function measuredOf(steps: readonly IPlanned[], vary: (ms: number) => number = ms => ms): IMeasured {
  const rows = steps.flatMap(({ table, plan, begin, end, done }, step) => [
    ...Array.from({ length: table.count }, (_, at) => ({
      stage: table.stage(at),
      chunk: Math.floor(table.virtual[at]! / plan.stages),
      // As a run says it: the gradient of the input is B too.
      kind: KINDS[table.kind[at]!]!.replace('I', 'B'),
      micro_batch: table.microBatch[at]!,
      begin: 1000 * step + begin[at]!,
      end: 1000 * step + begin[at]! + vary(end[at]! - begin[at]!),
      step
    })),
    ...Array.from(done, (time, stage) => {
      const last = end[table.starts[stage + 1]! - 1]!;
      return {
        stage,
        chunk: 0,
        kind: 'O',
        micro_batch: 0,
        begin: 1000 * step + last,
        end: 1000 * step + time,
        step
      };
    })
  ]);
  const column = <K extends keyof (typeof rows)[number]>(name: K): (typeof rows)[number][K][] =>
    rows.map(row => row[name]);
  return {
    stage: column('stage'),
    chunk: column('chunk'),
    kind: column('kind'),
    micro_batch: column('micro_batch'),
    begin: column('begin'),
    end: column('end'),
    step: column('step')
  };
}

describe('a measured step laid over its plan', () => {
  it('finds nothing where everything went as planned', () => {
    const predicted = simulatePlan(planOf('zb_h1'), TIMES);
    const { stages, rows, beginMs, plannedMs, measuredMs } = compare(
      predicted,
      measuredOf([predicted, predicted])
    );
    expect(beginMs).toBe(1000);
    expect(measuredMs).toBeCloseTo(plannedMs);
    expect(rows.every(row => row >= 0)).toBe(true);
    for (const { laterMs, reason, missing } of stages) {
      expect([laterMs.toFixed(6), reason, missing]).toEqual([
        expect.stringMatching(/^-?0.000000$/),
        'none',
        0
      ]);
    }
  });

  it('names the stage whose own compute is slower, and which stages wait for it', () => {
    for (const name of ['1f1b', 'zb_h1'] as const) {
      const plan = planOf(name);
      const slow = simulatePlan(plan, { ...TIMES, forward: [4, 10, 6] });
      const { stages } = compare(simulatePlan(plan, TIMES), measuredOf([slow]));
      expect(stages[1]).toMatchObject({ reason: 'compute', computeMs: 30 });
      expect(stages[0]).toMatchObject({ computeMs: 0, reason: 'wait', waitedFor: 1 });
      for (const { laterMs, computeMs, waitMs, messageMs } of stages) {
        expect(laterMs).toBeCloseTo(computeMs + waitMs + messageMs);
      }
    }
  });

  it('tells slower messages from slower compute', () => {
    const plan = planOf('1f1b');
    const slow = simulatePlan(plan, { ...TIMES, latency: 4 });
    const { stages } = compare(simulatePlan(plan, TIMES), measuredOf([slow]));
    expect(stages[2]).toMatchObject({ reason: 'message', computeMs: 0 });
    expect(stages[2]!.messageMs).toBeGreaterThan(0);
  });

  it('says so where nothing of the plan was measured', () => {
    const predicted = simulatePlan(planOf('1f1b'), TIMES);
    const none: IMeasured = { stage: [], chunk: [], kind: [], micro_batch: [], begin: [], end: [] };
    expect(() => compare(predicted, none)).toThrow('got none of the plan');
  });
});

describe('times from measured steps', () => {
  it.each(['zb_h1', 'zb_v', '1f1b', 'interleaved_1f1b'] as const)(
    'of %s are those that it ran with',
    name => {
      const plan = planOf(name);
      const step = simulatePlan(plan, TIMES);
      const { times, steps, split, messages } = timesFromMeasured(measuredOf([step, step, step]), plan);
      expect([steps, split]).toEqual([3, name.startsWith('zb')]);
      expect(messages).toBeGreaterThan(0);
      expect(times.latency).toBeCloseTo(0.5);
      expect(times.jitter).toBeCloseTo(0);
      const optimizer = timesFor(TIMES, plan).optimizer;
      expect([...timesFor(times, plan).optimizer]).toEqual([...optimizer].map(ms => expect.closeTo(ms)));
      expect(simulatePlan(plan, times).nominalMs).toBeCloseTo(step.nominalMs);
    }
  );

  it('read the jitter off the spread, whatever a few outliers say', () => {
    const random = new SeededRandom(1);
    const normal = (): number =>
      Math.sqrt(3) * (random.centred() + random.centred() + random.centred() + random.centred());
    const plan = planOf('zb_h1');
    const step = simulatePlan(plan, TIMES);
    const rows = measuredOf(
      new Array<IPlanned>(40).fill(step),
      ms => ms * (random.below(50) === 0 ? 8 : 1 + 0.1 * normal())
    );
    const { times } = timesFromMeasured(rows, plan);
    expect(times.jitter! / 0.1).toBeCloseTo(1, 0);
  });

  it('name the virtual stage that was not measured', () => {
    const plan = planOf('1f1b');
    const rows = measuredOf([simulatePlan(plan, TIMES)]);
    const kind = Array.from(rows.kind, (each, at) => (rows.stage[at] === 2 && each === 'B' ? 'none' : each));
    expect(() => timesFromMeasured({ ...rows, kind }, plan)).toThrow('got no 2B');
  });
});

describe('what to do', () => {
  it('says by how much another schedule is shorter, with what chance makes of it', () => {
    const all = { ...TIMES, jitter: 0.05, activation_bytes: 1e9 };
    const [current, best] = ['1f1b', 'zb_h2'].map(name =>
      simulatePlan(planOf(name as MadeSchedule, all), all)
    ) as [IPlanned, IPlanned];
    const found = verdict(best, current);
    expect(found).toMatchObject({ change: 'switch', schedule: 'zb_h2', memoryBytes: 2e9 });
    expect(found.percent).toBeLessThan(-1);
    expect(found.plusMinus).toBeGreaterThan(0);
    expect(verdict(current, best)).toMatchObject({ change: 'keep', schedule: 'zb_h2' });
    expect(verdict(current, current)).toMatchObject({ change: 'keep', percent: 0, memoryBytes: 0 });
  });

  it('keeps what runs where the difference may be chance', () => {
    const all = { ...TIMES, jitter: 0.5 };
    const [current, best] = ['zb_h1', 'zb_h2'].map(name =>
      simulatePlan(planOf(name as MadeSchedule, all), all)
    ) as [IPlanned, IPlanned];
    expect(verdict(best, current).change).toBe('keep');
  });
});

describe('a whole backward pass', () => {
  it('takes what is said of it, else the sum of its parts', () => {
    const step = (name: MadeSchedule, more: object): number => {
      const all = { forward: 10, input_gradient: 10, weight_gradient: 10, ...more };
      const shape = shapeOf(name, { stages: 4, micro_batches: 8, chunks: 1 });
      return simulatePlan(makePlan(name, shape, timesFor(all, shape)), all).nominalMs;
    };
    expect(step('gpipe', {})).toBe(11 * 30);
    expect(step('gpipe', { backward: 15 })).toBe(11 * 25);
    expect(step('zb_h1', { backward: 15 })).toBe(step('zb_h1', {}));
  });
});

describe('shares of the depth', () => {
  it.each([
    [6, 3, 6, [3, 3, 3, 3, 3, 3]],
    [[1, 2, 3], 3, 3, [1, 2, 3]],
    [[4, 2], 2, 4, [2, 2, 1, 1]],
    [[1, 2, 3, 4], 2, 2, [3, 7]],
    [[3, 6], 3, 3, [2, 3, 4]],
    [[2, 2, 2], 2, 2, [3, 3]]
  ])('%j on %i stages in %i parts is %j', (value, stages, parts, shares) => {
    expect([...shareOut(value, stages, parts)]).toEqual(shares.map(each => expect.closeTo(each, 12)));
  });
});

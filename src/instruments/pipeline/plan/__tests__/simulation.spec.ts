/** @jest-environment ./jest.environment.node.js */
import type { PipelineTimes, Plan } from '../../protocol/pipeline.generated';
import { SeededRandom } from '../../../../protocol/seeded-random';
import { checkPlan, type IPlanned } from '../check-plan';
import { MADE_SCHEDULES, makePlan, shapeOf } from '../make-plan';
import { memoryLine, timesFor } from '../memory';
import { FORWARD, PlanError, passes, virtualOf } from '../plan-shape';
import { simulatePlan } from '../plan-all';
import { Simulation } from '../simulation';

const random = new SeededRandom(20);

function list(length: number, most = 9): number[] {
  return Array.from({ length }, () => random.below(most + 1));
}

function randomTimes(stages: number): PipelineTimes {
  return {
    forward: list(stages),
    input_gradient: list(stages),
    weight_gradient: list(stages),
    optimizer: random.below(4),
    latency: random.below(3),
    bandwidth: random.below(2) === 0 ? null : 1,
    message_bytes: random.below(4),
    activation_bytes: 3,
    weight_gradient_bytes: random.below(4),
    weight_bytes: list(stages)
  };
}

/** Everything that must hold of any simulated step. What is wrong of an operation is gathered: thousands of expectations take longer than the simulations. */
function expectSound({
  table,
  times,
  begin,
  end,
  done,
  nominalMs,
  criticalPath,
  proof,
  busyMs,
  bubble
}: IPlanned): void {
  const { starts, waits, shape } = table;
  const wrong: string[] = [];
  const seen = new Set<number>();
  for (const at of proof) {
    const isFirst = at === starts[table.stage(at)];
    if (!(isFirst || seen.has(at - 1)) || !(waits[at]! < 0 || seen.has(waits[at]!))) {
      wrong.push(`${table.name(at)} is proved before what it waits for`);
    }
    seen.add(at);
  }
  expect(seen.size).toBe(table.count);
  const sent = new Map<string, number>();
  for (let at = 0; at < table.count; at += 1) {
    const stage = table.stage(at);
    if (!(begin[at]! >= (at === starts[stage] ? 0 : end[at - 1]!))) {
      wrong.push(`${table.name(at)} begins before its stage is free`);
    }
    const sender = waits[at]!;
    if (sender >= 0) {
      const link = { from: table.stage(sender), to: stage };
      const { send, latency } = link.from === stage ? { send: 0, latency: 0 } : times.link(link);
      if (!(begin[at]! + 1e-9 >= end[sender]! + send + latency)) {
        wrong.push(`${table.name(at)} begins before its message is there`);
      }
      sent.set(`${link.from} ${link.to}`, (sent.get(`${link.from} ${link.to}`) ?? 0) + 1);
    }
  }
  expect(wrong).toEqual([]);
  for (let stage = 0; stage < shape.stages; stage += 1) {
    const { bytes, time } = memoryLine(table, times, stage, { begin, end });
    expect(Math.min(...bytes) + 1e-9).toBeGreaterThanOrEqual(times.weights[stage]!);
    expect(bytes.at(-1)).toBeCloseTo(times.weights[stage]!);
    expect([...time]).toEqual([...time].sort((a, b) => a - b));
    expect(nominalMs * (1 - bubble[stage]!)).toBeCloseTo(busyMs[stage]!);
  }
  expect(nominalMs).toBe(Math.max(...done));
  // The critical path covers the step from its begin to its end.
  expect(criticalPath.at(-1)?.end ?? 0).toBe(nominalMs);
  expect(criticalPath.map(({ begin }) => begin)).toEqual(
    [0, ...criticalPath.map(({ end }) => end)].slice(0, criticalPath.length)
  );
}

/** A plan of random orders, in which each forward pass stands before its backward pass, some of which are in two parts. */
function randomPlan(): Plan {
  const placement = (['loop', 'v', 'two_way'] as const)[random.below(3)]!;
  const stages = 2 + random.below(3);
  const chunks = placement === 'loop' ? 1 + random.below(2) : 2;
  const shape = { stages, chunks, micro_batches: 2 * (1 + random.below(2)), placement };
  const order = Array.from({ length: stages }, (_, stage) => {
    const words: string[] = [];
    for (let chunk = 0; chunk < chunks; chunk += 1) {
      const virtual = virtualOf(stage, chunk, shape);
      for (let microBatch = 0; microBatch < shape.micro_batches; microBatch += 1) {
        if (passes(virtual, microBatch, shape)) {
          // Mostly early forward and late backward passes, or every order had a circle.
          const kinds = random.below(2) === 0 ? 'FB' : 'FIW';
          let place = random.below(1 + Math.floor(words.length / 2));
          for (const kind of kinds) {
            words.splice(place, 0, `${virtual}${kind}${microBatch}`);
            place += 1 + random.below(words.length - place);
          }
        }
      }
    }
    return words.join(' ');
  });
  return { schedule: 'random', ...shape, order };
}

describe('the simulation', () => {
  it('takes the time that can be counted by hand', () => {
    const plan: Plan = {
      schedule: 'own',
      stages: 2,
      chunks: 1,
      micro_batches: 2,
      placement: 'loop',
      order: ['0F0 0F1 0B0 0B1', '1F0 1B0 1F1 1B1']
    };
    const step = simulatePlan(plan, {
      forward: [2, 3],
      input_gradient: 1,
      weight_gradient: [1, 2],
      optimizer: 0.5,
      latency: 1,
      bandwidth: 10,
      message_bytes: 5,
      links: [{ from: 1, to: 0, latency: 2 }],
      activation_bytes: 8,
      weight_bytes: 100
    });
    // 0F0 to 2, sent to 2.5, there at 3.5; 1F0 to 6.5, 1B0 to 9.5, there at 9.5 + 0.5 + 2.
    expect([...step.begin]).toEqual([0, 2, 12, 18, 3.5, 6.5, 9.5, 12.5]);
    expect(step.nominalMs).toBe(20.5);
    expect([...step.busyMs]).toEqual([8.5, 12.5]);
    expect([...step.peakBytes]).toEqual([116, 108]);
    expect(step.links).toEqual([
      { from: 0, to: 1, messages: 2, bytes: 10 },
      { from: 1, to: 0, messages: 2, bytes: 10 }
    ]);
    expect(
      step.criticalPath.map(part => (part.what === 'optimizer' ? 'O' : `${part.what[0]} ${part.operation}`))
    ).toEqual(['o 0F0', 'm 0F0', 'o 1F0', 'o 1B0', 'o 1F1', 'o 1B1', 'm 1B1', 'o 0B1', 'O']);
  });

  it('lets messages of one direction follow one another', () => {
    const plan: Plan = {
      schedule: 'own',
      stages: 2,
      chunks: 1,
      micro_batches: 3,
      placement: 'loop',
      order: ['0F0 0F1 0F2 0B0 0B1 0B2', '1F0 1F1 1F2 1B0 1B1 1B2']
    };
    const { begin } = simulatePlan(plan, { forward: 1, bandwidth: 1, message_bytes: 4 });
    expect([...begin.subarray(6, 9)]).toEqual([5, 9, 13]);
  });

  it('holds what must hold for every schedule with random times', () => {
    for (let round = 0; round < 6; round += 1) {
      const stages = 1 + random.below(6);
      const numbers = { stages, micro_batches: stages * (1 + random.below(4)), chunks: 1 + random.below(3) };
      for (const name of MADE_SCHEDULES) {
        let shape;
        try {
          shape = shapeOf(name, numbers);
        } catch {
          continue;
        }
        const all = randomTimes(stages);
        expectSound(simulatePlan(makePlan(name, shape, timesFor(all, shape)), all));
      }
    }
  });

  it('gives the same numbers for the same seed, and others for another', () => {
    const shape = shapeOf('zb_h1', { stages: 4, micro_batches: 8, chunks: 1 });
    const all = { forward: 4, jitter: 0.1 };
    const plan = makePlan('zb_h1', shape, timesFor(all, shape));
    const [one, same, other] = [1, 1, 2].map(seed => simulatePlan(plan, all, { seed })) as [
      IPlanned,
      IPlanned,
      IPlanned
    ];
    expect([same.stepMs, same.lowMs, same.highMs]).toEqual([one.stepMs, one.lowMs, one.highMs]);
    expect(other.stepMs).not.toBe(one.stepMs);
    expect(one.lowMs).toBeLessThan(one.stepMs);
    expect(one.highMs).toBeGreaterThan(one.stepMs);
    // What is drawn has no jitter, and waits for the slowest make the mean longer than it.
    expect(one.nominalMs).toBeLessThan(one.stepMs);
    const still = simulatePlan(plan, { forward: 4 });
    expect([still.stepMs, still.lowMs, still.highMs]).toEqual(new Array(3).fill(still.nominalMs));
    expect(one.nominalMs).toBe(still.nominalMs);
  });

  it('the interval holds 95 % of the steps of one stage, whose spread is known', () => {
    const order = [Array.from({ length: 100 }, (_, at) => `0F${at} 0B${at}`).join(' ')];
    const plan: Plan = {
      schedule: 'own',
      stages: 1,
      chunks: 1,
      micro_batches: 100,
      placement: 'loop',
      order
    };
    const { stepMs, lowMs, highMs } = simulatePlan(plan, {
      forward: 1,
      input_gradient: 0.5,
      weight_gradient: 0.5,
      jitter: 0.2
    });
    // 200 durations of 1 ms with a deviation of 0.2.
    const deviation = Math.sqrt(200) * 0.2;
    expect(Math.abs(stepMs - 200)).toBeLessThan(deviation / 3);
    expect((highMs - lowMs) / (2 * 1.96 * deviation)).toBeCloseTo(1, 0);
  });

  it('2,000 plans with random orders and delays either run to their end or have a circle that is found', () => {
    let circles = 0;
    for (let round = 0; round < 2_000; round += 1) {
      const plan = randomPlan();
      try {
        const table = checkPlan(plan);
        const simulation = new Simulation(table, timesFor(randomTimes(plan.stages), plan));
        simulation.durations.forEach((_, at) => (simulation.durations[at] = random.below(20)));
        if (!Number.isFinite(simulation.run())) {
          throw new Error(`${plan.order.join(' | ')} stopped`);
        }
      } catch (error) {
        if (!(error instanceof PlanError)) {
          throw error;
        }
        circles += 1;
        expectCircle(plan, error);
      }
    }
    expect(circles).toBeGreaterThan(200);
    expect(circles).toBeLessThan(1800);
  });
});

/** Each operation waits for the next, or stands behind it on its stage. */
function expectCircle(plan: Plan, { code, cycle }: PlanError): void {
  if (code !== 'cycle' || cycle.length === 0) {
    throw new Error(`No circle is named in ${plan.order.join(' | ')}, but ${code}`);
  }
  cycle.forEach((name, at) => {
    const next = cycle[(at + 1) % cycle.length]!;
    const [, virtual, kind, microBatch] = /^(\d+)([FBIW])(\d+)$/.exec(name)!;
    const other = Number(virtual) + (kind === 'F' ? -1 : 1);
    const waits =
      kind !== 'W' &&
      (kind === 'F' ? ['F'] : ['B', 'I']).some(each => next === `${other}${each}${microBatch}`);
    const words = plan.order.map(text => text.split(' ')).find(each => each.includes(name))!;
    const isBehind = words.includes(next) && words.indexOf(next) < words.indexOf(name);
    if (!waits && !isBehind) {
      throw new Error(`${name} does not wait for ${next} in ${plan.order.join(' | ')}`);
    }
  });
}

describe('a table of operations', () => {
  it('knows what each forward pass feeds', () => {
    const shape = shapeOf('1f1b', { stages: 2, micro_batches: 2, chunks: 1 });
    const table = checkPlan(makePlan('1f1b', shape, timesFor({ forward: 1 }, shape)));
    expect(table.name(table.feeds[table.find(FORWARD, 0, 1)]!)).toBe('1F1');
  });
});

/** @jest-environment ./jest.environment.node.js */
import type { ScheduleName } from '../../protocol/pipeline.generated';
import { checkPlan } from '../check-plan';
import { closedFormBubble, inTurnBubble } from './closed-form';
import { MADE_SCHEDULES, makePlan, shapeOf, type MadeSchedule } from '../make-plan';
import { BACKWARD, FORWARD, type OperationTable, virtualStages } from '../plan-shape';
import { Simulation } from '../simulation';
import { timesFor } from '../memory';

interface ICase {
  readonly name: MadeSchedule;
  readonly stages: number;
  readonly micro_batches: number;
  readonly chunks: number;
  readonly forward: number;
  readonly input: number;
  readonly weight: number;
}

/** The longest that a stage is idle from its begin until it is done. */
function bubbleOf({ name, ...each }: ICase, overlaps = false): number {
  const shape = shapeOf(name, each);
  const { forward, input, weight } = each;
  const times = timesFor({ forward, input_gradient: input, weight_gradient: weight }, shape);
  const table = checkPlan(makePlan(name, shape, times));
  const simulation = new Simulation(table, times, overlaps ? overlapped(table) : []);
  simulation.run();
  const spans = Array.from(
    { length: each.stages },
    (_, stage) => simulation.free[stage]! - simulation.begin[table.starts[stage]!]!
  );
  return Math.max(...spans) - each.micro_batches * (forward + input + weight);
}

/** Forward passes that DualPipe runs as one with the backward pass of the other way after them: all such pairs, but the first where the two ways meet. */
function overlapped(table: OperationTable): number[] {
  const { kind, virtual, starts, shape } = table;
  const width = virtualStages(shape);
  return Array.from({ length: shape.stages }, (_, stage) => {
    const pairs = [];
    for (let at = starts[stage]!; at + 1 < starts[stage + 1]!; at += 1) {
      if (kind[at] === FORWARD && kind[at + 1] === BACKWARD && virtual[at] !== virtual[at + 1]) {
        pairs.push(at);
      }
    }
    const ends = shape.placement === 'v' ? [width / 2 - 1] : [shape.stages / 2 - 1, shape.stages / 2];
    return ends.includes(stage) ? pairs.slice(1) : pairs;
  }).flat();
}

const DURATIONS = [
  [1, 1, 1],
  [2, 2, 2],
  [2, 3, 1],
  [3, 2, 1],
  [2, 2, 1],
  [3, 3, 2],
  [4, 3, 2],
  [1, 1, 0.5],
  [5, 7, 3]
] as const;
const SIZES = [
  [2, 4, 2],
  [4, 8, 2],
  [4, 16, 4],
  [8, 32, 2],
  [6, 24, 3]
] as const;

const CASES: ICase[] = MADE_SCHEDULES.flatMap(name =>
  DURATIONS.flatMap(([forward, input, weight]) =>
    SIZES.map(([stages, micro_batches, chunks]) => ({
      name,
      stages,
      micro_batches,
      chunks,
      forward,
      input,
      weight
    }))
  )
);

describe('closed forms', () => {
  it.each(MADE_SCHEDULES)('the simulated bubble of %s is the formula of its authors', name => {
    const cases = CASES.filter(each => each.name === name);
    const known = cases.filter(
      each => closedFormBubble(name as ScheduleName, { ...each, chunks: shapeOf(name, each).chunks }) !== null
    );
    expect(known.length).toBeGreaterThanOrEqual(name === 'zb_v' ? 10 : 20);
    for (const each of known) {
      const formula = closedFormBubble(name, { ...each, chunks: shapeOf(name, each).chunks });
      expect([each, bubbleOf(each, name.startsWith('dual')).toFixed(9)]).toEqual([each, formula!.toFixed(9)]);
    }
  });

  it.each(['dualpipe', 'dualpipev'] as const)(
    'a forward pass of %s that hands on before the backward pass beside it is done leaves its own bubble',
    name => {
      const cases = CASES.filter(each => each.name === name);
      const known = cases.filter(each => inTurnBubble(name, { ...each, chunks: 2 }) !== null);
      expect(known.length).toBeGreaterThanOrEqual(20);
      for (const each of known) {
        const formula = inTurnBubble(name, { ...each, chunks: 2 });
        expect([each, bubbleOf(each).toFixed(9)]).toEqual([each, formula!.toFixed(9)]);
      }
    }
  );
});

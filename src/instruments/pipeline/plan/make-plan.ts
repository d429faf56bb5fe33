import type { Placement, Plan, ScheduleName } from '../protocol/pipeline.generated';
import { greedyOrder, type IGreedyRule } from './greedy-order';
import { type IPlanShape, checkShape, PlanError } from './plan-shape';
import {
  dualPipe,
  dualPipeV,
  interleaved,
  gpipe,
  oneForwardOneBackward,
  zeroBubbleH1,
  zeroBubbleH2,
  breadthFirst,
  depthFirst,
  megaDpp,
  type StageOrder,
  zeroBubbleV
} from './schedules';
import type { IStageTimes } from './memory';

/** A schedule that follows from numbers alone, or by a rule from times. */
export type MadeSchedule = Exclude<ScheduleName, 'search'>;

interface ISchedule {
  readonly title: string;
  readonly placement: Placement;
  /** Chunks that it always has; as many as are asked for when absent. */
  readonly chunks?: number;
  /** Says what numbers do not fit; null where they do. */
  misfit?(shape: IPlanShape): string | null;
  order?(stage: number, shape: IPlanShape): StageOrder;
  rule?(shape: IPlanShape): IGreedyRule;
}

const multiple = ({ stages, micro_batches }: IPlanShape): string | null =>
  micro_batches % stages === 0
    ? null
    : `a number of micro-batches that is a multiple of its ${stages} stages, got ${micro_batches}. Try ${Math.ceil(micro_batches / stages) * stages}`;

const enough = ({ stages, micro_batches }: IPlanShape): string | null =>
  micro_batches >= 2 * stages
    ? null
    : `at least ${2 * stages} micro-batches, twice its stages, got ${micro_batches}. Try more of them`;

const even = ({ stages, micro_batches }: IPlanShape): string | null =>
  stages % 2 === 1
    ? `an even number of stages, got ${stages}. Try DualPipeV`
    : micro_batches % 2 === 1
      ? `an even number of micro-batches, got ${micro_batches}. Try ${micro_batches + 1}`
      : null;

const SCHEDULES: Readonly<Record<MadeSchedule, ISchedule>> = {
  gpipe: {
    title: 'GPipe',
    placement: 'loop',
    chunks: 1,
    order: (stage, { stages, micro_batches }) => gpipe(stage, stages, micro_batches)
  },
  '1f1b': {
    title: '1F1B',
    placement: 'loop',
    chunks: 1,
    order: (stage, { stages, micro_batches }) => oneForwardOneBackward(stage, stages, micro_batches)
  },
  interleaved_1f1b: {
    title: 'Interleaved 1F1B',
    placement: 'loop',
    misfit: multiple,
    order: (stage, { stages, chunks, micro_batches }) => interleaved(stage, stages, chunks, micro_batches)
  },
  depth_first: { title: 'Depth-first', placement: 'loop', rule: depthFirst },
  breadth_first: { title: 'Breadth-first', placement: 'loop', rule: breadthFirst },
  megadpp: { title: 'MegaDPP', placement: 'loop', misfit: multiple, rule: megaDpp },
  zb_h1: {
    title: 'ZB-H1',
    placement: 'loop',
    chunks: 1,
    order: (stage, { stages, micro_batches }) => zeroBubbleH1(stage, stages, micro_batches)
  },
  zb_h2: {
    title: 'ZB-H2',
    placement: 'loop',
    chunks: 1,
    order: (stage, { stages, micro_batches }) => zeroBubbleH2(stage, stages, micro_batches)
  },
  zb_v: {
    title: 'ZB-V',
    placement: 'v',
    chunks: 2,
    order: (stage, { stages, micro_batches }) => zeroBubbleV(stage, stages, micro_batches)
  },
  dualpipe: {
    title: 'DualPipe',
    placement: 'two_way',
    chunks: 2,
    misfit: shape => even(shape) ?? enough(shape),
    order: (stage, { stages, micro_batches }) => dualPipe(stage, stages, micro_batches)
  },
  dualpipev: {
    title: 'DualPipeV',
    placement: 'v',
    chunks: 2,
    misfit: enough,
    order: (stage, { stages, micro_batches }) => dualPipeV(stage, stages, micro_batches)
  }
};

/** Schedules that `makePlan` makes, in the order in which they are shown. */
export const MADE_SCHEDULES = Object.keys(SCHEDULES) as readonly MadeSchedule[];

/** What people call a schedule; a name that is none of the planner's stays as it is. */
export function scheduleTitle(name: string): string {
  const made = MADE_SCHEDULES.find(each => each === name);
  return made !== undefined ? SCHEDULES[made].title : name === 'search' ? 'Search' : name;
}

/**
 * The shape that a schedule has with so many stages and micro-batches.
 * @throws PlanError `fit` where the schedule does not take these numbers, `shape` where they are too many.
 */
export function shapeOf(
  name: MadeSchedule,
  { stages, micro_batches, chunks }: { stages: number; micro_batches: number; chunks: number }
): IPlanShape {
  const { placement, chunks: own = chunks, misfit, title } = SCHEDULES[name];
  const shape = { stages, chunks: own, micro_batches, placement };
  const words = misfit?.(shape) ?? null;
  if (words !== null) {
    throw new PlanError('fit', `${title} must have ${words}.`);
  }
  checkShape(shape);
  return shape;
}

/**
 * Make the plan of a schedule.
 * @param shape - As `shapeOf` gave it.
 * @param times - Of that shape; the order of `depth_first`, `breadth_first` and `megadpp` results from them.
 */
export function makePlan(name: MadeSchedule, shape: IPlanShape, times: IStageTimes): Plan {
  const { order, rule } = SCHEDULES[name];
  const { stages, chunks, micro_batches, placement } = shape;
  const words =
    rule !== undefined
      ? greedyOrder(shape, times, rule(shape))
      : Array.from({ length: stages }, (_, stage) => order?.(stage, shape).words ?? []);
  return {
    schedule: name,
    stages,
    chunks,
    micro_batches,
    placement,
    order: words.map(each => each.join(' '))
  };
}

import type { SplitFamily, SplitLayout } from '../protocol/split.generated';
import { BestLayouts } from './best-layouts';
import { kindOrders, seatings } from './seatings';
import { cutLayers, type ISeating } from './cut-layers';
import { guessStep } from './guess-step';
import { improveLayout } from './improve-layout';
import { everyLayout, layoutOf, layoutsOf, shapesOf, type ILayoutShape } from './layout-space';
import type { SplitSimulation } from './split-simulation';

/** How long a family is searched. */
export interface ISearchLimits {
  /** Layouts up to which each one is tried. */
  readonly every: number;
  /** Passes that are simulated for a search among more, about 5 ns each. */
  readonly work: number;
}

export const USUAL_LIMITS: ISearchLimits = { every: 20_000, work: 3e7 };

/** Layouts that are kept of a family. */
const KEPT = 5;
/** Seatings of a shape that are simulated, and layouts that are improved. */
const TRIED = 8;
const IMPROVED = 24;
/** Passes between two breaths. */
const SLICE = 2e6;

/**
 * Look for the layouts of a family with the shortest steps that fit in memory.
 *
 * A small space is tried whole. Of a large one the shapes (replicas, degrees, stages) are taken by a guess from the fastest devices, those that cannot be better are left out; each
 * gets kinds of devices in a few orders, layers so that the slowest stage is as fast as can be, and the best of these are improved step by step. What is found depends on the
 * request alone: work is counted, not time. Yields between slices of work.
 */
export function* searchFamily(
  simulation: SplitSimulation,
  family: SplitFamily,
  limits: ISearchLimits = USUAL_LIMITS
): Generator<void, BestLayouts> {
  const { request } = simulation;
  const best = new BestLayouts(simulation, KEPT);
  const shapes = shapesOf(family, request);
  let slice = 0;
  const isTimeToBreathe = (): boolean => {
    const isSo = best.work > slice + SLICE;
    slice = isSo ? best.work : slice;
    return isSo;
  };
  if (shapes.reduce((sum, shape) => sum + layoutsOf(shape, request.layers.length), 0) <= limits.every) {
    for (const shape of shapes) {
      for (const layout of everyLayout(shape, request.layers.length)) {
        best.offer(layout);
        if (isTimeToBreathe()) {
          yield;
        }
      }
    }
    return best;
  }
  const starts = new BestLayouts(simulation, IMPROVED, true);
  const until = Float64Array.from([0, ...request.layers]);
  for (let layer = 1; layer < until.length; layer += 1) {
    until[layer]! += until[layer - 1]!;
  }
  if (request.layout?.family === family) {
    starts.offer(request.layout);
  }
  const guessed = shapes
    .map(shape => ({ shape, ...guessStep(shape, request) }))
    .filter(({ least }) => least < Infinity)
    .sort((a, b) => a.likely - b.likely);
  const orders = kindOrders(request.devices);
  for (const { shape, least } of guessed) {
    if (starts.work > limits.work / 2) {
      break;
    }
    if (least >= starts.leastMs) {
      continue;
    }
    const cut = (
      seating: ISeating,
      slacks?: readonly number[]
    ): { guess: number; layers: readonly number[] }[] => {
      starts.work += 4 * (request.layers.length + 8 * shape.stages);
      return cutLayers(shape, seating, request, until, slacks);
    };
    const few = seatings(shape, orders)
      .map(seating => ({ seating, guess: cut(seating)[0]?.guess ?? Infinity }))
      .filter(each => each.guess < Infinity)
      .sort((a, b) => a.guess - b.guess)
      .slice(0, TRIED);
    for (const { seating } of few) {
      for (const { layers } of cut(seating, [1, 1.2])) {
        starts.offer(layoutOf(shape, seating.kinds, seating.forwardKinds, layers));
      }
    }
    if (starts.work > slice + SLICE) {
      slice = starts.work;
      yield;
    }
  }
  slice = 0;
  for (const { layout } of starts.found) {
    const shape = shapeOfLayout(layout, shapes);
    const recut = (other: SplitLayout): readonly (readonly number[])[] =>
      shape === undefined
        ? []
        : cutLayers(
            shape,
            {
              kinds: other.stages.map(({ device }) => device),
              forwardKinds: other.stages.map(({ forward_device }) => forward_device ?? -1)
            },
            request,
            until
          ).map(({ layers }) => layers);
    for (const _ of improveLayout(layout, best, request, recut)) {
      if (best.work > limits.work / 2) {
        break;
      }
      if (isTimeToBreathe()) {
        yield;
      }
    }
  }
  best.leastOver = Math.min(best.leastOver, starts.leastOver);
  return best;
}

function shapeOfLayout(layout: SplitLayout, shapes: readonly ILayoutShape[]): ILayoutShape | undefined {
  const { data, tensor, forward_tensor, stages } = layout;
  const last = typeof stages.at(-1)?.forward_device === 'number';
  return shapes.find(
    shape =>
      shape.data === data &&
      shape.tensor === tensor &&
      shape.stages === stages.length &&
      shape.lastForward === last &&
      (forward_tensor === undefined || shape.forwardTensor === forward_tensor)
  );
}

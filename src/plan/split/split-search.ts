import type { SplitFamily, SplitLayout } from '../../protocol/split.generated';
import { BestLayouts } from './best-layouts';
import { cutLayers, wholeStage, type ISeating } from './cut-layers';
import { improveLayout } from './improve-layout';
import { everyLayout, forwardGroups, layoutOf, layoutsOf, shapesOf, type ILayoutShape } from './layout-space';
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
const TRIED = 4;
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
  const starts = new BestLayouts(simulation, IMPROVED);
  const until = Float64Array.from([0, ...request.layers]);
  for (let layer = 1; layer < until.length; layer += 1) {
    until[layer]! += until[layer - 1]!;
  }
  if (request.layout?.family === family) {
    starts.offer(request.layout);
  }
  const guessed = shapes
    .map(shape => ({ shape, ...guess(shape, simulation) }))
    .filter(({ least }) => least < Infinity)
    .sort((a, b) => a.likely - b.likely);
  for (const { shape, least } of guessed) {
    if (least >= starts.leastMs) {
      continue;
    }
    if (starts.work > limits.work / 2) {
      break;
    }
    const layouts = seatings(shape, simulation).flatMap(seating => {
      starts.work += 60 * shape.stages;
      return cutLayers(shape, seating, request, until, [1, 1.2]).map(cut => ({
        guess: cut.guess,
        layout: layoutOf(shape, seating.kinds, seating.forwardKinds, cut.layers)
      }));
    });
    for (const { layout } of layouts.sort((a, b) => a.guess - b.guess).slice(0, TRIED)) {
      starts.offer(layout);
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
            until,
            [1]
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

/** ms that a shape's step takes at least, and likely, were layers as fine as can be and each stage on the fastest devices that there are. */
function guess(
  shape: ILayoutShape,
  { request }: SplitSimulation
): { readonly least: number; readonly likely: number } {
  const { devices, latency, micro_batches, message_bytes, bandwidth } = request;
  const { stages, tensor, counts, data } = shape;
  const speeds = devices.flatMap((_, kind) => {
    const { each } = wholeStage(shape, 0, kind, -1, request);
    return new Array<number>(Math.min(stages, Math.floor(counts[kind]! / tensor))).fill(1 / each);
  });
  if (speeds.length < stages) {
    return { least: Infinity, likely: Infinity };
  }
  const sorted = speeds.sort((a, b) => b - a).slice(0, stages);
  const slowest = 1 / sorted.reduce((sum, speed) => sum + speed, 0);
  const fastest = 1 / sorted[0]!;
  const count = micro_batches / data;
  const least = Math.max(count * slowest, fastest);
  const chain = fastest + 2 * (stages - 1) * (latency + message_bytes / bandwidth);
  return { least, likely: chain + (count - 1) * slowest };
}

/** Kinds of devices for the stages: blocks of alike ones, chosen and placed in a few orders. */
function seatings(shape: ILayoutShape, { request }: SplitSimulation): ISeating[] {
  const { stages, tensor, forwardTensor, counts } = shape;
  const orders = kindOrders(request.devices);
  const found = new Map<string, ISeating>();
  const groups = forwardGroups(shape);
  for (const choice of orders) {
    const chosen = take(choice, counts, tensor, stages);
    if (chosen === null) {
      continue;
    }
    const left = counts.map((count, kind) => count - tensor * chosen[kind]!);
    for (const forwardChoice of groups > 0 ? orders : [choice]) {
      const forward = take(forwardChoice, left, forwardTensor, groups);
      if (forward === null) {
        continue;
      }
      for (const order of orders) {
        const kinds = order.flatMap(kind => new Array<number>(chosen[kind]!).fill(kind));
        for (const forwardOrder of groups > 0 ? orders : [order]) {
          const forwardKinds = forwardOrder.flatMap(kind => new Array<number>(forward[kind]!).fill(kind));
          found.set(`${kinds.join()} ${forwardKinds.join()}`, { kinds, forwardKinds });
        }
      }
    }
  }
  return [...found.values()];
}

/** Groups of each kind, as many as there are of the first, then of the second; null where there are too few. */
function take(
  order: readonly number[],
  counts: readonly number[],
  each: number,
  groups: number
): number[] | null {
  const taken = counts.map(() => 0);
  let rest = groups;
  for (const kind of order) {
    taken[kind] = Math.min(rest, Math.floor(counts[kind]! / each));
    rest -= taken[kind]!;
  }
  return rest > 0 ? null : taken;
}

/** Kinds from the fastest to the slowest and back, by memory, and by how well they do forward passes compared with others. */
function kindOrders(devices: SplitSimulation['request']['devices']): number[][] {
  const by = (rank: (kind: (typeof devices)[number]) => number): number[] =>
    devices.map((_, at) => at).sort((a, b) => rank(devices[a]!) - rank(devices[b]!) || a - b);
  const orders = [
    by(kind => kind.recompute + kind.backward),
    by(kind => -kind.recompute - kind.backward),
    by(kind => -Math.min(kind.memory, 1e30)),
    by(kind => kind.forward / (kind.recompute + kind.backward || 1)),
    by(kind => -kind.forward / (kind.recompute + kind.backward || 1))
  ];
  return [...new Map(orders.map(order => [order.join(), order])).values()];
}

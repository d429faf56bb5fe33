import type { SplitLayout, SplitFamily } from '../protocol/split.generated';
import type { ISeating, ILayoutShape } from './cut-layers';
import { cutLayers, forwardGroups, everyLayout, layoutOf, layoutsOf, shapesOf } from './cut-layers';
import { guessStep } from './measured-split';
import type { SplitSimulation } from './split-simulation';
import { devicesOf, type IFullKind, type IFullSplitRequest } from './split-request';

export interface ICostedLayout {
  readonly layout: SplitLayout;
  readonly stepMs: number;
}

/** The few best of the layouts tried that fit in memory, each once; of equals the first stays in front. */
export class BestLayouts {
  /**
   * @param isLenient - Whether layouts over the memory limit are retained, too, behind all others.
   */
  constructor(
    private readonly simulation: SplitSimulation,
    private readonly most: number,
    private readonly isLenient = false
  ) {}

  readonly found: ICostedLayout[] = [];
  /** Operations that were simulated: what the search has cost. */
  work = 0;
  /** Layouts that were tried, and the least by which one exceeded the memory. */
  tried = 0;
  leastOver = Infinity;

  /** Try a layout, which may then change. Returns ms of its step; if over memory, a huge penalty. */
  offer(layout: SplitLayout): number {
    const { stepMs, overBytes } = this.simulation.cost(layout);
    this.work += 3 * layout.stages.length * this.simulation.microBatches;
    this.tried += 1;
    this.leastOver = Math.min(this.leastOver, overBytes);
    const rank = overBytes > 0 ? 1e30 * (1 + overBytes) : stepMs;
    if (overBytes === 0 || this.isLenient) {
      this.keep(layout, rank);
    }
    return rank;
  }

  /** The shortest step so far, far above any where none fits in memory. */
  get leastMs(): number {
    return this.found[0]?.stepMs ?? Infinity;
  }

  private keep(layout: SplitLayout, stepMs: number): void {
    const { found, most } = this;
    if (found.length < most || stepMs < found[most - 1]!.stepMs) {
      const at = found.findIndex(each => stepMs < each.stepMs);
      const index = at < 0 ? found.length : at;
      const key = JSON.stringify(layout);
      // The same has the same ms, and so stands right before the place.
      for (let same = index - 1; same >= 0 && found[same]!.stepMs === stepMs; same -= 1) {
        if (JSON.stringify(found[same]!.layout) === key) {
          return;
        }
      }
      found.splice(index, 0, {
        layout: { ...layout, stages: layout.stages.map(stage => ({ ...stage })) },
        stepMs
      });
      found.length = Math.min(found.length, most);
    }
  }
}

/** Orders of kinds of devices: by speed, both ways, by memory, by relative forward speed; each once. */
function kindOrders(devices: readonly IFullKind[]): number[][] {
  const by = (rank: (kind: IFullKind) => number): number[] =>
    devices.map((_, at) => at).sort((a, b) => rank(devices[a]!) - rank(devices[b]!) || a - b);
  return distinct([
    by(kind => kind.recompute + kind.backward),
    by(kind => -kind.recompute - kind.backward),
    by(kind => -Math.min(kind.memory, 1e30)),
    by(kind => kind.forward / (kind.recompute + kind.backward || 1)),
    by(kind => -kind.forward / (kind.recompute + kind.backward || 1))
  ]);
}

/**
 * Kinds of devices for the stages of a shape: blocks of alike ones, chosen and placed in a few orders.
 * @param orders - Those of `kindOrders`.
 */
function seatings(shape: ILayoutShape, orders: readonly (readonly number[])[]): ISeating[] {
  const { stages, tensor, forwardTensor, counts } = shape;
  const groups = forwardGroups(shape);
  return choices(orders, counts, tensor, stages).flatMap(chosen => {
    const left = counts.map((count, kind) => count - tensor * chosen[kind]!);
    const rows = placed(chosen, orders);
    return groups === 0
      ? rows.map(kinds => ({ kinds, forwardKinds: [] }))
      : choices(orders, left, forwardTensor, groups).flatMap(forward =>
          placed(forward, orders).flatMap(forwardKinds => rows.map(kinds => ({ kinds, forwardKinds })))
        );
  });
}

/** Groups of each kind: all of the first kind of an order, then of the second, until there are enough. */
function choices(
  orders: readonly (readonly number[])[],
  counts: readonly number[],
  each: number,
  groups: number
): number[][] {
  return distinct(
    orders.flatMap(order => {
      const taken = counts.map(() => 0);
      let rest = groups;
      for (const kind of order) {
        taken[kind] = Math.min(rest, Math.floor(counts[kind]! / each));
        rest -= taken[kind]!;
      }
      return rest > 0 ? [] : [taken];
    })
  );
}

function placed(chosen: readonly number[], orders: readonly (readonly number[])[]): number[][] {
  return distinct(orders.map(order => order.filter(kind => chosen[kind]! > 0))).map(order =>
    order.flatMap(kind => new Array<number>(chosen[kind]!).fill(kind))
  );
}

const distinct = (lists: readonly number[][]): number[][] => [
  ...new Map(lists.map(list => [list.join(), list])).values()
];

/** Stages up to which each pair of them is tried; above only neighbours. */
const FEW_STAGES = 8;

type Stages = SplitLayout['stages'];
type Place = { readonly stage: number; readonly name: 'device' | 'forward_device' };

/**
 * Change a layout little by little as long as its step gets shorter: move a layer from one stage to another,
 * let two stages change places, give a stage another kind of device, let two swap theirs.
 *
 * Yields after each change that was tried.
 */
function* improveLayout(
  start: SplitLayout,
  best: BestLayouts,
  request: IFullSplitRequest,
  recut: (layout: SplitLayout) => Iterable<readonly number[]>
): Generator<void> {
  let layout = start;
  let least = best.offer(layout);
  for (let isBetter = true; isBetter;) {
    isBetter = false;
    for (const stages of changes(layout.stages, request)) {
      const other = { ...layout, stages };
      if (devicesOf(other, request.devices) === null) {
        continue;
      }
      const isSeatedAnew = stages.some(
        ({ device, forward_device }, at) =>
          device !== layout.stages[at]!.device || forward_device !== layout.stages[at]!.forward_device
      );
      const cuts = isSeatedAnew ? recut(other) : [];
      const ways = [
        other,
        ...Array.from(cuts, layers => ({
          ...other,
          stages: stages.map((each, at) => ({ ...each, layers: layers[at]! }))
        }))
      ];
      for (const way of ways) {
        const found = best.offer(way);
        if (found < least * (1 - 1e-9)) {
          least = found;
          layout = way;
          isBetter = true;
        }
        yield;
      }
      if (isBetter) {
        break;
      }
    }
  }
}

function* changes(stages: Stages, { devices }: IFullSplitRequest): Generator<Stages> {
  const isNear = (a: number, b: number): boolean => stages.length <= FEW_STAGES || Math.abs(a - b) === 1;
  for (let from = 0; from < stages.length; from += 1) {
    for (let to = 0; to < stages.length && stages[from]!.layers > 1; to += 1) {
      if (from !== to && isNear(from, to)) {
        yield stages.map((each, at) =>
          at === from
            ? { ...each, layers: each.layers - 1 }
            : at === to
              ? { ...each, layers: each.layers + 1 }
              : each
        );
      }
    }
  }
  for (let from = 0; from < stages.length; from += 1) {
    for (let to = from + 1; to < stages.length; to += 1) {
      // Only the last stage may do without a forward process.
      const areAlike = (stages[from]!.forward_device === null) === (stages[to]!.forward_device === null);
      if (isNear(from, to) && areAlike) {
        yield stages.map((each, at) => (at === from ? stages[to]! : at === to ? stages[from]! : each));
      }
    }
  }
  const places = stages.flatMap(({ forward_device }, stage): Place[] => [
    { stage, name: 'device' },
    ...(typeof forward_device === 'number' ? [{ stage, name: 'forward_device' as const }] : [])
  ]);
  const kindAt = ({ stage, name }: Place): number => stages[stage]![name]!;
  const seat = (...seats: (readonly [Place, number])[]): Stages => {
    const changed = stages.map(each => ({ ...each }));
    for (const [{ stage, name }, kind] of seats) {
      changed[stage]![name] = kind;
    }
    return changed;
  };
  for (const [at, one] of places.entries()) {
    for (let kind = 0; kind < devices.length; kind += 1) {
      if (kind !== kindAt(one)) {
        yield seat([one, kind]);
      }
    }
    for (const other of places.slice(at + 1)) {
      if (kindAt(one) !== kindAt(other) && (one.stage === other.stage || isNear(one.stage, other.stage))) {
        yield seat([one, kindAt(other)], [other, kindAt(one)]);
      }
    }
  }
}

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
 * A small space is tried whole. Of a large one the shapes (replicas, degrees, stages) are taken by a guess
 * from the fastest devices, those that cannot be better are left out; each gets kinds of devices in a few
 * orders, layers so that the slowest stage is as fast as can be, and the best of these are improved step by
 * step. What is found depends on the request alone: work is counted, not time. Yields between slices of work.
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

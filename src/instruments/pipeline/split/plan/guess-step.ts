import { wholeStage } from './cut-layers';
import { forwardGroups, type ILayoutShape } from './layout-space';
import type { IFullSplitRequest } from './split-request';

/** Groups of alike devices, and how much of the model each of them does in a ms. */
interface IGroups {
  readonly kind: number;
  readonly groups: number;
  readonly speed: number;
}

/** ms that a step takes at least, and likely. */
export interface IStepGuess {
  readonly least: number;
  readonly likely: number;
}

/**
 * Guess how long the steps of a shape's layouts are, were each stage on the fastest devices that there are: at least, and likely. Infinity where these cannot hold the model.
 *
 * Without a look at single stages, so that it costs little for shapes of many.
 */
export function guessStep(shape: ILayoutShape, request: IFullSplitRequest): IStepGuess {
  const { devices, layers, latency, micro_batches, message_bytes, bandwidth, state_bytes, weight_bytes } =
    request;
  const { stages, tensor, forwardTensor, counts, data } = shape;
  const wholes = devices.map((_, kind) => wholeStage(shape, 0, kind, -1, request));
  const backs = fastest(counts, tensor, stages, kind => 1 / wholes[kind]!.each);
  const rooms = fastest(counts, tensor, stages, kind => devices[kind]!.memory * tensor);
  if (backs === null || rooms === null || total(rooms) < state_bytes) {
    return { least: Infinity, likely: Infinity };
  }
  const count = micro_batches / data;
  // Whatever the stages are, a micro-batch goes forth and back through the whole model.
  const once = Math.min(...backs.map(({ kind }) => wholes[kind]!.chain));
  const sums = 2 * (data - 1) * latency;
  const cheapest = Math.min(...layers);
  const slowest = bottleneck(backs, cheapest, layers.length);
  const taken = counts.map(
    (all, kind) => all - tensor * (backs.find(each => each.kind === kind)?.groups ?? 0)
  );
  const aheads = fastest(
    taken,
    forwardTensor,
    forwardGroups(shape),
    kind => forwardTensor / devices[kind]!.forward
  );
  const chain =
    once +
    2 * (stages - 1) * (latency + message_bytes / bandwidth) +
    (2 * (1 - 1 / data) * weight_bytes) / tensor / stages / bandwidth;
  const together = aheads === null || aheads.length === 0 ? backs : pairs(backs, aheads);
  return {
    least: Math.max(count * slowest, once) + sums,
    likely: chain + sums + (count - 1) * Math.max(slowest, bottleneck(together, cheapest, layers.length))
  };
}

/** The best groups, in descending order; null where there are too few. */
function fastest(
  counts: readonly number[],
  each: number,
  groups: number,
  speed: (kind: number) => number
): IGroups[] | null {
  let rest = groups;
  const found = counts
    .map((count, kind) => ({ kind, groups: Math.floor(count / each), speed: speed(kind) }))
    .sort((a, b) => (b.speed === a.speed ? a.kind - b.kind : b.speed - a.speed))
    .map(each => {
      const taken = Math.min(rest, each.groups);
      rest -= taken;
      return { ...each, groups: taken };
    })
    .filter(each => each.groups > 0);
  return rest > 0 ? null : found;
}

/** The fastest of one beside the fastest of the other; each pair is as fast as its slower one. */
function pairs(backs: readonly IGroups[], aheads: readonly IGroups[]): IGroups[] {
  const found: IGroups[] = [];
  const left = aheads.map(each => ({ ...each }));
  for (const back of backs) {
    for (let rest = back.groups; rest > 0;) {
      const first = left.find(({ groups }) => groups > 0);
      const groups = Math.min(rest, first?.groups ?? rest);
      found.push({ ...back, groups, speed: Math.min(back.speed, first?.speed ?? Infinity) });
      rest -= groups;
      if (first !== undefined) {
        first.groups -= groups;
      }
    }
  }
  return found;
}

/** ms of the slowest stage, at least: were layers as fine as can be, and where each stage has whole layers of which none costs less than the cheapest. */
function bottleneck(groups: readonly IGroups[], cheapest: number, layers: number): number {
  let low = 1 / total(groups);
  const fits = (ms: number): boolean => {
    let sum = 0;
    for (const { groups: count, speed } of groups) {
      const each = Math.floor((ms * speed) / cheapest + 1e-9);
      if (!(each >= 1)) {
        return false;
      }
      sum += count * each;
    }
    return sum >= layers;
  };
  if (fits(low)) {
    return low;
  }
  let high = Math.max(...groups.map(({ speed }) => 1 / speed));
  for (let turn = 0; turn < 12; turn += 1) {
    const middle = (low + high) / 2;
    if (fits(middle)) {
      high = middle;
    } else {
      low = middle;
    }
  }
  return low;
}

const total = (groups: readonly IGroups[]): number =>
  groups.reduce((sum, each) => sum + each.groups * each.speed, 0);

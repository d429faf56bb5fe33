import { isApart, type IFullSplitRequest, MOST_PASSES } from './split-request';
import type { SplitFamily, SplitLayout } from '../protocol/split.generated';

/** Numbers of stages that are all tried; above only each so manieth. */
const FINE_STAGES = 64;
const COARSE = 16;

/** What layouts have in common that differ only in their kinds of devices and in where layers are cut. */
export interface ILayoutShape {
  readonly family: SplitFamily;
  readonly data: number;
  readonly tensor: number;
  readonly forwardTensor: number;
  readonly stages: number;
  readonly lastForward: boolean;
  /** Of each kind: devices that one replica may take. */
  readonly counts: readonly number[];
  /** Devices that one replica may take of all kinds. */
  readonly most: number;
}

/** The shapes of a family for which there may be devices enough, those with few replicas first. */
export function shapesOf(family: SplitFamily, request: IFullSplitRequest): ILayoutShape[] {
  const { devices, layers, micro_batches, tensors } = request;
  const isSplit = family === 'split';
  const apart = isApart(family);
  const isWhole = family === 'ordinary' || family === 'recompute';
  const all = devices.reduce((sum, { count }) => sum + count, 0) - (family === 'megafbd' ? 1 : 0);
  const shapes: ILayoutShape[] = [];
  for (let data = 1; data <= Math.min(all, micro_batches); data += 1) {
    if (micro_batches % data > 0) {
      continue;
    }
    const counts = devices.map(({ count }) => Math.floor(count / data));
    const most = Math.floor(all / data);
    for (const tensor of tensors) {
      const forwardTensors = isSplit ? tensors.filter(each => each <= tensor) : [apart ? 1 : tensor];
      for (const forwardTensor of forwardTensors) {
        const each = apart ? tensor + forwardTensor : tensor;
        const first = apart || isWhole ? 1 : 2;
        const last = isWhole ? 1 : Math.min(layers.length, MOST_PASSES / (micro_batches / data));
        for (let stages = first; stages <= last; stages += stages < FINE_STAGES ? 1 : COARSE) {
          for (const lastForward of isSplit && stages > 1 ? [false, true] : [apart]) {
            if (stages * each - (isSplit && !lastForward ? forwardTensor : 0) <= most) {
              shapes.push({ family, data, tensor, forwardTensor, stages, lastForward, counts, most });
            }
          }
        }
      }
    }
  }
  return shapes;
}

export function forwardGroups({ family, stages, lastForward }: ILayoutShape): number {
  return isApart(family) ? stages - (lastForward ? 0 : 1) : 0;
}

export function layoutsOf(shape: ILayoutShape, layers: number): number {
  let count = shape.counts.length ** (shape.stages + forwardGroups(shape));
  // Ways to cut so many layers into so many stages.
  for (let cut = 1; cut < shape.stages && count < 1e9; cut += 1) {
    count *= (layers - cut) / cut;
  }
  return count;
}

export function layoutOf(
  { family, data, tensor, forwardTensor }: ILayoutShape,
  kinds: readonly number[],
  forwardKinds: readonly number[],
  layers: readonly number[]
): SplitLayout {
  return {
    family,
    data,
    tensor,
    ...(family === 'split' ? { forward_tensor: forwardTensor } : {}),
    stages: kinds.map((device, stage) => ({
      device,
      layers: layers[stage]!,
      ...(isApart(family) ? { forward_device: forwardKinds[stage] ?? null } : {})
    }))
  };
}

/** All layouts of a shape. One object, which changes. */
export function* everyLayout(shape: ILayoutShape, layers: number): Generator<SplitLayout> {
  const { stages, tensor, forwardTensor, counts } = shape;
  const layout = layoutOf(shape, new Array<number>(stages).fill(0), [], []);
  const left = [...counts];
  const groups = stages + forwardGroups(shape);
  function* cut(stage: number, rest: number): Generator<SplitLayout> {
    const own = layout.stages[stage]!;
    if (stage === stages - 1) {
      own.layers = rest;
      yield layout;
      return;
    }
    for (own.layers = 1; own.layers <= rest - (stages - 1 - stage); own.layers += 1) {
      yield* cut(stage + 1, rest - own.layers);
    }
  }
  function* seat(group: number): Generator<SplitLayout> {
    if (group === groups) {
      yield* cut(0, layers);
      return;
    }
    const takes = group < stages ? tensor : forwardTensor;
    for (let kind = 0; kind < left.length; kind += 1) {
      if (left[kind]! >= takes) {
        left[kind]! -= takes;
        if (group < stages) {
          layout.stages[group]!.device = kind;
        } else {
          layout.stages[group - stages]!.forward_device = kind;
        }
        yield* seat(group + 1);
        left[kind]! += takes;
      }
    }
  }
  yield* seat(0);
}

// Called often: where code runs in a context of its own, each look at a global takes longer than the number.
const { max, min } = Math;

/** Kinds of devices of one replica, by stage; of forwards -1 where there is no such process. */
export interface ISeating {
  readonly kinds: readonly number[];
  readonly forwardKinds: readonly number[];
}

/** What a stage would take and hold, were it the whole model; it takes its share of that. ms and bytes. */
interface IWholeStage {
  /** What each micro-batch takes of the slower of its processes. */
  readonly each: number;
  /** A micro-batch's time forth and back; recomputation overlaps with the wait for its gradient. */
  readonly chain: number;
  /** The largest share that fits in memory. */
  readonly most: number;
}

/** A way to cut the layers, and a guess at the step's ms. */
export interface ICut {
  readonly layers: readonly number[];
  readonly guess: number;
}

/**
 * Cut the layers so that the slowest stage is as fast as can be with these devices, within their memory; and
 * with some slack, where stages that come first, or last, take as much as they may. Infinite slack in
 * nothing: each has at least one layer.
 *
 * Where no cut fits in memory, it is not heeded.
 */
export function cutLayers(
  shape: ILayoutShape,
  { kinds, forwardKinds }: ISeating,
  request: IFullSplitRequest,
  until: Float64Array,
  slacks: readonly number[] = []
): ICut[] {
  const count = shape.stages;
  const wholes = kinds.map((kind, stage) =>
    wholeStage(shape, stage, kind, forwardKinds[stage] ?? -1, request)
  );
  const microBatches = request.micro_batches / shape.data;
  const way = 2 * (count - 1) * (request.latency + request.message_bytes / request.bandwidth);
  const layers = request.layers.length;
  const ends = new Int32Array(count);
  let isBound = true;
  /** Give each stage in turn as many layers as may be; whether all have room. */
  const fill = (limit: number, backwards: boolean): boolean => {
    let from = backwards ? layers : 0;
    for (let turn = 0; turn < count; turn += 1) {
      const stage = backwards ? count - 1 - turn : turn;
      const { each, most } = wholes[stage]!;
      // A little more, so that sums that are equal but for rounding count as equal.
      const share = min(isBound ? most : Infinity, limit / each) * (1 + 1e-12) + 1e-15;
      const rest = count - 1 - turn;
      let to = from;
      if (backwards) {
        while (to > rest && until[from]! - until[to - 1]! <= share) {
          to -= 1;
        }
        ends[stage] = from;
      } else {
        while (to < layers - rest && until[to + 1]! - until[from]! <= share) {
          to += 1;
        }
        ends[stage] = to;
      }
      if (to === from) {
        return false;
      }
      from = to;
    }
    return from === (backwards ? 0 : layers);
  };
  isBound = fill(Infinity, false);
  // From the time of a perfect balance upwards, until each layer has a place; then down again, as near as
  // matters.
  let low = 1 / wholes.reduce((sum, { each }) => sum + 1 / each, 0);
  let high = low;
  for (let step = low / 16; !fill(high, false) && high < Infinity; step *= 2) {
    low = high;
    high = step > 0 ? high + step : Infinity;
  }
  while (high - low > 1e-3 * low && high < Infinity) {
    const middle = (low + high) / 2;
    if (fill(middle, false)) {
      high = middle;
    } else {
      low = middle;
    }
  }
  const cuts: ICut[] = [];
  const ways: readonly (readonly [number, boolean])[] = [
    [1, false],
    ...slacks.flatMap(slack => [[slack, false] as const, [slack, true] as const])
  ];
  for (const [slack, backwards] of ways) {
    if (fill(high * slack, backwards)) {
      let slowest = 0;
      let chain = way;
      const cut = Array.from(ends, (end, stage) => {
        const begin = stage === 0 ? 0 : ends[stage - 1]!;
        const share = until[end]! - until[begin]!;
        slowest = max(slowest, wholes[stage]!.each * share);
        chain += wholes[stage]!.chain * share;
        return end - begin;
      });
      cuts.push({ layers: cut, guess: chain + (microBatches - 1) * slowest });
    }
  }
  return cuts;
}

/** What a stage would take on a kind of devices. */
export function wholeStage(
  { family, tensor, forwardTensor, stages, data }: ILayoutShape,
  stage: number,
  kind: number,
  forwardKind: number,
  request: IFullSplitRequest
): IWholeStage {
  const { devices, tensor_ms, message_bytes, state_bytes, activation_bytes, weight_bytes, ahead } = request;
  const microBatches = request.micro_batches / data;
  const { forward, recompute, backward, memory } = devices[kind]!;
  const apart = isApart(family);
  const own = (ms: number): number => ms / tensor + (tensor > 1 ? tensor_ms : 0);
  const isRecomputing = apart || family === 'recompute' || family === 'pipeline_recompute';
  const inFlight = min(microBatches, stages - stage);
  const back = own(backward) + (isRecomputing ? own(recompute) : 0);
  const inputs = stage > 0 ? message_bytes : 0;
  const kept = apart ? min(ahead, microBatches) : isRecomputing ? 1 : inFlight;
  const capacity = memory - (apart ? inputs : isRecomputing ? inFlight * inputs : 0);
  const most = shareWithin(capacity, (state_bytes + kept * activation_bytes) / tensor);
  if (!apart) {
    const first = own(isRecomputing ? forward : recompute);
    return { each: back + first, chain: first + own(backward), most };
  }
  const seat = devices[forwardKind];
  if (seat === undefined) {
    return { each: back, chain: own(backward), most };
  }
  const passes = seat.forward / forwardTensor + (forwardTensor > 1 ? tensor_ms : 0);
  const held = family === 'megafbd' ? state_bytes : weight_bytes / forwardTensor;
  return {
    each: max(passes, back),
    chain: passes + own(backward),
    most: min(most, shareWithin(seat.memory - 2 * message_bytes, held))
  };
}

const shareWithin = (capacity: number, whole: number): number =>
  capacity < 0 ? -1 : whole === 0 || capacity === Infinity ? Infinity : capacity / whole;

import type { ILayoutShape } from './layout-space';
import { isApart } from './layout-shape';
import type { IFullSplitRequest } from './split-request';

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

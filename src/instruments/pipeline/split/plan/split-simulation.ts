import type { SplitLayout } from '../protocol/split.generated';
import { forwardTensorOf, isApart, type IFullSplitRequest } from './split-request';

// Called millions of times: where code runs in a context of its own, each look at a global takes longer than
// the number.
const { max, min } = Math;

/** Stages times micro-batches above which a cost is worked out from fewer micro-batches. */
const LARGE = 1024;

export interface ISplitCost {
  /** ms from the begin of a step until the next can begin. */
  readonly stepMs: number;
  /** By how much the worst process exceeds the memory of its device. */
  readonly overBytes: number;
}

/**
 * Runs the step of one replica of a layout; replicas are alike. Members are those of the last run.
 *
 * A step ends when each process has its new weights (and none begins the next before): simple, and a little
 * longer than a run whose first stages begin while the last still end. Times are ms from the step's begin, by
 * stage times micro-batches, plus micro-batch.
 */
export class SplitSimulation implements ISplitCost {
  constructor(readonly request: IFullSplitRequest) {
    let sum = 0;
    this.until = Float64Array.from([0, ...request.layers], share => (sum += share));
  }

  stepMs = 0;
  overBytes = 0;
  microBatches = 0;
  /** When passes end. */
  forwardEnd = new Float64Array(0);
  recomputeEnd = new Float64Array(0);
  backwardEnd = new Float64Array(0);
  /** By stage: ms of a pass; of forwards below 0 where there is no such process. */
  readonly forward = new Float64Array(1024);
  readonly recompute = new Float64Array(1024);
  readonly backward = new Float64Array(1024);
  /**
   * By stage: when gradients are summed, when the optimizer is done, and the same of forward processes: of
   * MegaFBD their optimizer, else their new weights.
   */
  readonly sumBegin = new Float64Array(1024);
  readonly trained = new Float64Array(1024);
  readonly newBegin = new Float64Array(1024);
  readonly newEnd = new Float64Array(1024);
  /** By stage: what a device holds at most. */
  readonly bytes = new Float64Array(1024);
  readonly forwardBytes = new Float64Array(1024);

  /** Cost of a layout; of large ones extrapolated from fewer micro-batches by what each further one takes. */
  cost(layout: SplitLayout): ISplitCost {
    const count = this.request.micro_batches / layout.data;
    const stages = layout.stages.length;
    const few = max(4 * stages + 2 * this.request.ahead + 8, Math.floor(LARGE / stages));
    this.run(layout, min(count, few), count);
    return this;
  }

  /**
   * Run a step.
   * @param all - How many there are; `stepMs` and `overBytes` are for these.
   */
  run(
    layout: SplitLayout,
    microBatches = this.request.micro_batches / layout.data,
    all = microBatches
  ): void {
    const { stages, family } = layout;
    this.microBatches = microBatches;
    const capacity = stages.length * microBatches;
    if (this.forwardEnd.length < capacity) {
      this.forwardEnd = new Float64Array(capacity);
      this.recomputeEnd = new Float64Array(capacity);
      this.backwardEnd = new Float64Array(capacity);
      this.input = new Float64Array(capacity);
      this.given = new Float64Array(capacity);
    }
    this.prepare(layout);
    if (isApart(family)) {
      this.runForward(stages.length, family === 'megafbd');
      this.runBackward(stages.length);
    } else {
      this.runTogether(stages.length);
    }
    this.endStep(layout, all);
  }

  private prepare(layout: SplitLayout): void {
    const { family, tensor, stages } = layout;
    const { devices, tensor_ms } = this.request;
    const apart = isApart(family);
    const forwardTensor = forwardTensorOf(layout);
    const isRecomputing = apart || family === 'recompute' || family === 'pipeline_recompute';
    let layer = 0;
    this.slowest = stages.length > 1 ? this.send() : 0;
    for (let stage = 0; stage < stages.length; stage += 1) {
      const { device, layers, forward_device } = stages[stage]!;
      const share = this.until[layer + layers]! - this.until[layer]!;
      layer += layers;
      this.share[stage] = share;
      const kind = devices[device]!;
      const extra = tensor > 1 ? tensor_ms * share : 0;
      const own = (ms: number): number => (ms * share) / tensor + extra;
      this.backward[stage] = own(kind.backward);
      this.recompute[stage] = isRecomputing ? own(kind.recompute) : 0;
      if (!apart) {
        this.forward[stage] = own(isRecomputing ? kind.forward : kind.recompute);
      } else if (typeof forward_device === 'number') {
        this.forward[stage] =
          (devices[forward_device]!.forward * share) / forwardTensor +
          (forwardTensor > 1 ? tensor_ms * share : 0);
      } else {
        this.forward[stage] = -1;
      }
      const back = this.recompute[stage]! + this.backward[stage]!;
      const ahead = this.forward[stage]!;
      this.slowest = max(this.slowest, apart ? max(ahead, back) : ahead + back);
      this.free[stage] = 0;
      this.link[stage] = 0;
    }
  }

  /** Forward processes wait for no others than those before them. */
  private runForward(stages: number, isPeer: boolean): void {
    const { microBatches: count, input, given, forwardEnd } = this;
    const { latency } = this.request;
    const send = this.send();
    input.fill(0, 0, count);
    given.fill(0, 0, count);
    for (let stage = 0; stage < stages; stage += 1) {
      const takes = this.forward[stage]!;
      const from = stage * count;
      this.forwardFree[stage] = 0;
      if (takes < 0) {
        continue;
      }
      let free = 0;
      let link = 0;
      for (let at = from; at < from + count; at += 1) {
        free = max(free, input[at]!) + takes;
        forwardEnd[at] = free;
        if (stage + 1 < stages) {
          // To the forward and to the backward process: two links that carry the same at the same time.
          link = max(link, free) + send;
          input[at + count] = link + latency;
          given[at + count] = link + latency;
        }
      }
      this.forwardFree[stage] = free;
    }
    for (let stage = 0; isPeer && stage < stages; stage += 1) {
      let link = 0;
      for (let at = 0; at < count; at += 1) {
        const after = min(count - 1, at + stages - 1 - stage);
        link = max(link, forwardEnd[stage * count + after]!) + send;
        given[stage * count + at] = link + latency;
      }
    }
  }

  private runBackward(stages: number): void {
    const { microBatches: count, given, recomputeEnd: againEnd, free } = this;
    const ahead = min(this.request.ahead, count);
    for (let stage = 0; stage < stages; stage += 1) {
      for (let at = stage * count; at < stage * count + ahead; at += 1) {
        free[stage] = againEnd[at] = max(free[stage]!, given[at]!) + this.recompute[stage]!;
      }
    }
    for (let microBatch = 0; microBatch < count; microBatch += 1) {
      for (let stage = stages - 1; stage >= 0; stage -= 1) {
        this.passBack(stage, stages, microBatch);
        if (microBatch + ahead < count) {
          const at = stage * count + microBatch + ahead;
          free[stage] = againEnd[at] = max(free[stage]!, given[at]!) + this.recompute[stage]!;
        }
      }
    }
  }

  /** 1F1B: each round takes a diagonal of forward passes, then the backward passes of one micro-batch. */
  private runTogether(stages: number): void {
    const { microBatches: count, input, free, forwardEnd, recomputeEnd: againEnd } = this;
    const { latency } = this.request;
    const send = this.send();
    const links = this.forwardFree.fill(0, 0, stages);
    input.fill(0, 0, count);
    for (let round = 0; round < count + stages - 1; round += 1) {
      for (let stage = max(0, round - count + 1); stage < stages && stage <= round; stage += 1) {
        const at = stage * count + round - stage;
        const end = max(free[stage]!, input[at]!) + this.forward[stage]!;
        free[stage] = forwardEnd[at] = end;
        if (stage + 1 < stages) {
          links[stage] = max(links[stage]!, end) + send;
          input[at + count] = links[stage]! + latency;
        }
      }
      const microBatch = round - stages + 1;
      for (let stage = stages - 1; stage >= 0 && microBatch >= 0; stage -= 1) {
        free[stage] = againEnd[stage * count + microBatch] = free[stage]! + this.recompute[stage]!;
        this.passBack(stage, stages, microBatch);
      }
    }
  }

  private passBack(stage: number, stages: number, microBatch: number): void {
    const { microBatches: count, link, free, backwardEnd } = this;
    const gradient = stage + 1 < stages ? link[stage + 1]! + this.request.latency : 0;
    const end = max(free[stage]!, gradient) + this.backward[stage]!;
    free[stage] = backwardEnd[stage * count + microBatch] = end;
    // The next of this link is only sent when this one was received, in the order of micro-batches.
    link[stage] = max(link[stage]!, end) + this.send();
  }

  private endStep(layout: SplitLayout, all: number): void {
    const { family, data, tensor, stages } = layout;
    const { devices, bandwidth, latency, weight_bytes } = this.request;
    const { microBatches: count, share, free, forwardFree } = this;
    const isPeer = family === 'megafbd';
    const apart = isApart(family);
    const forwardTensor = forwardTensorOf(layout);
    const sharers = isPeer ? 2 * data : data;
    const sum = (bytes: number): number => 2 * (sharers - 1) * (bytes / sharers / bandwidth + latency);
    let end = 0;
    let arrives = 0;
    this.overBytes = 0;
    for (let stage = 0; stage < stages.length; stage += 1) {
      const { device, forward_device } = stages[stage]!;
      const weights = weight_bytes * share[stage]!;
      const hasForward = apart && typeof forward_device === 'number';
      const begin = isPeer ? max(free[stage]!, forwardFree[stage]!) : free[stage]!;
      this.sumBegin[stage] = begin;
      this.trained[stage] =
        begin + sum(weights / tensor) + (devices[device]!.optimizer * share[stage]!) / tensor;
      end = max(end, this.trained[stage]!);
      if (hasForward) {
        this.newBegin[stage] = isPeer ? begin : max(forwardFree[stage]!, this.trained[stage]!);
        this.newEnd[stage] =
          this.newBegin[stage]! +
          (isPeer
            ? sum(weights) + devices[forward_device]!.optimizer * share[stage]!
            : weights / forwardTensor / bandwidth + latency);
        end = max(end, this.newEnd[stage]!);
      }
      this.hold(layout, stage, all, apart && all > count ? this.growth(stage, stages.length, arrives) : 0);
      arrives = max(arrives, this.forward[stage]!, this.send());
      this.overBytes = max(
        this.overBytes,
        this.bytes[stage]! - devices[device]!.memory,
        hasForward ? this.forwardBytes[stage]! - devices[forward_device]!.memory : 0
      );
    }
    this.stepMs = end + (all > count ? (all - count) * this.pace(stages.length) : 0);
  }

  /** ms of each further micro-batch: of the slowest process, or with too few in flight, the last stage. */
  private pace(stages: number): number {
    const { microBatches: count, backwardEnd, slowest } = this;
    const last = stages * count - 1;
    const some = count >> 1;
    return max(slowest, (backwardEnd[last]! - backwardEnd[last - some]!) / some);
  }

  /** Inputs that a further micro-batch adds to a backward process's queue, if it is slower than its feed. */
  private growth(stage: number, stages: number, arrives: number): number {
    let takes = arrives;
    for (let at = stage; at < stages; at += 1) {
      takes = max(takes, this.recompute[at]! + this.backward[at]!);
    }
    return takes > 0 ? 1 - arrives / takes : 0;
  }

  /** What processes of a stage hold. */
  private hold(layout: SplitLayout, stage: number, all: number, growth: number): void {
    const { family, tensor, stages } = layout;
    const { state_bytes, weight_bytes, activation_bytes, message_bytes, ahead } = this.request;
    const share = this.share[stage]!;
    const state = (state_bytes * share) / tensor;
    const whole = (activation_bytes * share) / tensor;
    const inFlight = min(all, stages.length - stage);
    const input = stage > 0 ? message_bytes : 0;
    switch (family) {
      case 'ordinary':
      case 'pipeline':
        this.bytes[stage] = state + inFlight * whole;
        break;
      case 'recompute':
      case 'pipeline_recompute':
        this.bytes[stage] = state + whole + inFlight * input;
        break;
      default: {
        const queued = input === 0 ? 0 : this.queued(stage) + Math.ceil((all - this.microBatches) * growth);
        this.bytes[stage] = state + min(all, ahead) * whole + queued * input;
        this.forwardBytes[stage] =
          (family === 'megafbd' ? state_bytes * share : (weight_bytes * share) / forwardTensorOf(layout)) +
          2 * message_bytes;
      }
    }
  }

  /** The most inputs that have arrived at a backward process and wait for their pass. */
  private queued(stage: number): number {
    const { microBatches: count, given, recomputeEnd: againEnd } = this;
    let most = 1;
    let begun = 0;
    for (let at = 0; at < count; at += 1) {
      while (
        begun <= at &&
        againEnd[stage * count + begun]! - this.recompute[stage]! < given[stage * count + at]!
      ) {
        begun += 1;
      }
      most = max(most, at + 1 - begun);
    }
    return most;
  }

  private send(): number {
    return this.request.message_bytes / this.request.bandwidth;
  }

  private readonly until: Float64Array;
  /** ms that the slowest process takes for a micro-batch. */
  private slowest = 0;
  /** When activations arrive at the next forward process, and at the next backward process. */
  private input = new Float64Array(0);
  private given = new Float64Array(0);
  /** By stage: its share of the model, when its processes are free, when the link to the stage before is. */
  private readonly share = new Float64Array(1024);
  private readonly free = new Float64Array(1024);
  private readonly forwardFree = new Float64Array(1024);
  private readonly link = new Float64Array(1024);
}

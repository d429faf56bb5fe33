import type { OperationTable, ILink, IPlanShape } from './plan-shape';
import { BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, stageOf, virtualStages } from './plan-shape';
import type { PipelineTimes } from '../protocol/pipeline.generated';

/** Times and sizes of each virtual stage and each stage of one plan. Times are ms, sizes bytes. */
export interface IStageTimes {
  /** By kind times virtual stages, plus virtual stage: F, B, I and W. B is the sum of I and W. */
  readonly duration: Float64Array;
  /** Of each virtual stage: what a forward pass keeps, and what of it is left between I and W. */
  readonly activation: Float64Array;
  readonly kept: Float64Array;
  readonly optimizer: Float64Array;
  readonly weights: Float64Array;
  readonly messageBytes: number;
  /** Standard deviation of each duration, as a share of it. */
  readonly jitter: number;
  /** Of a message: ms on the link, where the next cannot follow, and ms until it then arrives. */
  link(direction: ILink): { readonly send: number; readonly latency: number };
}

/**
 * Share a list out to as many equal parts of the model's depth.
 * @param value - Equal shares of the depth; one number is that of each of so many stages.
 * @param parts - How many are needed. Where they do not divide, a share is spread evenly over what it covers.
 */
export function shareOut(value: number | readonly number[], stages: number, parts: number): Float64Array {
  const list = typeof value === 'number' ? new Float64Array(stages).fill(value) : value;
  const shares = new Float64Array(parts);
  if (list.length === parts) {
    shares.set(list);
    return shares;
  }
  // In units of which the whole depth has length times parts: a share covers `parts` of them, a part
  // `list.length`.
  for (let part = 0; part < parts; part += 1) {
    const begin = part * list.length;
    const end = begin + list.length;
    for (let at = Math.floor(begin / parts); at * parts < end; at += 1) {
      const covered = Math.min(end, (at + 1) * parts) - Math.max(begin, at * parts);
      shares[part]! += (list[at]! * covered) / parts;
    }
  }
  return shares;
}

/**
 * Times as one plan needs them. A stage with two copies of the model holds two parts, each as large as a
 * stage of one: with `two_way` a number is that of each part.
 */
export function timesFor(times: PipelineTimes, shape: IPlanShape): IStageTimes {
  const { stages, placement } = shape;
  const count = virtualStages(shape);
  const parts = placement === 'two_way' ? stages : count;
  const each = (value: number | readonly number[]): Float64Array => {
    const shares = shareOut(value, stages, parts);
    return Float64Array.from({ length: count }, (_, virtual) => shares[virtual % parts]!);
  };
  const ofStages = (value: number | readonly number[]): Float64Array => {
    const sums = new Float64Array(stages);
    each(value).forEach((share, virtual) => (sums[stageOf(virtual, shape)]! += share));
    return sums;
  };
  const forward = each(times.forward);
  const input = each(times.input_gradient ?? times.forward);
  const weight = each(times.weight_gradient ?? times.forward);
  const duration = new Float64Array(4 * count);
  duration.set(forward, FORWARD * count);
  duration.set(
    times.backward === undefined
      ? input.map((value, virtual) => value + weight[virtual]!)
      : each(times.backward),
    BACKWARD * count
  );
  duration.set(input, INPUT_GRADIENT * count);
  duration.set(weight, WEIGHT_GRADIENT * count);
  const activation = each(times.activation_bytes ?? 0);
  const bytes = times.message_bytes ?? 0;
  const others = new Map((times.links ?? []).map(other => [`${other.from} ${other.to}`, other]));
  return {
    duration,
    activation,
    // What is left of an activation is no more than all of it.
    kept:
      times.weight_gradient_bytes === undefined
        ? activation
        : each(times.weight_gradient_bytes).map((value, virtual) => Math.min(value, activation[virtual]!)),
    optimizer: ofStages(times.optimizer ?? 0),
    weights: ofStages(times.weight_bytes ?? 0),
    messageBytes: bytes,
    jitter: times.jitter ?? 0,
    link: ({ from, to }) => {
      const other = others.get(`${from} ${to}`);
      const bandwidth = other?.bandwidth === undefined ? times.bandwidth : other.bandwidth;
      return {
        send: bandwidth === null || bandwidth === undefined ? 0 : bytes / bandwidth,
        latency: other?.latency ?? times.latency ?? 0
      };
    }
  };
}

/** Bytes with three digits. */
export function byteWords(bytes: number): string {
  const units = ['bytes', 'kB', 'MB', 'GB', 'TB', 'PB'];
  const power = units.filter((_, at) => at > 0 && bytes >= 1000 ** at).length;
  return `${Number((bytes / 1000 ** power).toPrecision(3))} ${units[power]}`;
}

/** Bytes that a forward pass adds to its stage at its begin, or a backward pass frees at its end (< 0). */
export function memoryChange(table: OperationTable, { activation, kept }: IStageTimes, at: number): number {
  const virtual = table.virtual[at]!;
  const kind = table.kind[at];
  return kind === FORWARD
    ? activation[virtual]!
    : kind === BACKWARD
      ? -activation[virtual]!
      : kind === INPUT_GRADIENT
        ? kept[virtual]! - activation[virtual]!
        : -kept[virtual]!;
}

/** By how many bytes a limit is exceeded; 0 within it, and where rounding alone goes beyond it. */
export function overLimit(bytes: number, limit: number): number {
  return bytes > limit * (1 + 1e-9) ? bytes - limit : 0;
}

/** Peak bytes of each stage, weights and activations. Depends on the order alone, not on times. */
export function peakMemory(table: OperationTable, times: IStageTimes): Float64Array {
  return times.weights.map((weights, stage) => {
    let used = weights;
    let peak = weights;
    for (let at = table.starts[stage]!; at < table.starts[stage + 1]!; at += 1) {
      used += memoryChange(table, times, at);
      peak = Math.max(peak, used);
    }
    return peak;
  });
}

/** A stage's memory over time: from each time (ms) on it holds so many bytes. */
export interface IMemoryLine {
  readonly time: Float64Array;
  readonly bytes: Float64Array;
}

/**
 * A stage's memory over a simulated step: its weights from 0 on, more where a forward pass begins, less where
 * a backward pass or a part of one ends.
 * @param begin - ms of each operation of the table.
 * @param end - ms of each operation of the table.
 */
export function memoryLine(
  table: OperationTable,
  times: IStageTimes,
  stage: number,
  { begin, end }: { readonly begin: Float64Array; readonly end: Float64Array }
): IMemoryLine {
  const first = table.starts[stage]!;
  const count = table.starts[stage + 1]! - first;
  const time = new Float64Array(count + 1);
  const bytes = new Float64Array(count + 1);
  let used = times.weights[stage]!;
  bytes[0] = used;
  for (let index = 0; index < count; index += 1) {
    const at = first + index;
    used += memoryChange(table, times, at);
    time[index + 1] = table.kind[at] === FORWARD ? begin[at]! : end[at]!;
    bytes[index + 1] = used;
  }
  return { time, bytes };
}

import { BACKWARD, FORWARD, INPUT_GRADIENT, type OperationTable } from './operation';
import type { IStageTimes } from './stage-times';

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

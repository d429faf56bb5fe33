import { firstPlace } from '../protocol/first-place';

/** A gap is wider than so many times the wider of the two distances beside it. */
const WIDER = 1.5;

/**
 * Say where a line begins anew because steps are missing: at the second of two steps whose distance is more than 1.5 times the larger of the
 * distances beside it. It needs no knowledge of how often anything is traced. Python's twin reads the same `protocol/fixtures/lines/`.
 *
 * @param steps - Ascending.
 * @returns Places of the steps that are not joined with the one before, ascending.
 */
export function gapStarts(steps: ArrayLike<number>): number[] {
  const distance = (at: number): number => (steps[at + 1] ?? NaN) - (steps[at] ?? NaN);
  const starts: number[] = [];
  for (let at = 1; at < steps.length; at += 1) {
    const beside = [distance(at - 2), distance(at)].filter(each => !Number.isNaN(each));
    if (beside.length > 0 && distance(at - 1) > WIDER * Math.max(...beside)) {
      starts.push(at);
    }
  }
  return starts;
}

/** Ascending places that are in one of several lists. */
export function joinStarts(...lists: readonly (readonly number[])[]): number[] {
  return [...new Set(lists.flat())].sort((a, b) => a - b);
}

/**
 * Find a step in ascending ones.
 *
 * @returns Place of the step itself, or of the newest before it; -1 where all are later.
 */
export function placeAt(steps: ArrayLike<number>, step: number): number {
  return firstPlace(steps.length, at => !((steps[at] as number) <= step)) - 1;
}

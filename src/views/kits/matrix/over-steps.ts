import { greatestOf, middleOf, telling, type IMatrix } from '../../../charts';
import type { Translate } from '../../shared/translate';

/** Most columns, and cells, of a picture of values over steps. */
const MOST_COLUMNS = 4096;
const MOST_CELLS = 4_000_000;

/** A row of values, one at each of its steps. */
export interface IStepRow {
  readonly steps: ArrayLike<number>;
  readonly values: ArrayLike<number>;
}

/** Rows over steps as the cells of a picture. */
export interface IStepCells extends IMatrix {
  readonly values: Float64Array;
  readonly missing: Uint8Array;
  /** Every step, ascending. */
  readonly steps: readonly number[];
  /** Steps that a column stands for. */
  readonly spacing: number;
  /** Edges of all columns. */
  readonly x: readonly [number, number];
  /** Whether columns are wider than the least distance of two steps. */
  readonly merged: boolean;
}

/**
 * Put rows into cells, a column for each step as far as there is room. Where several share one, that which
 * is not finite is shown, else the one that says most: a spike is never under others.
 *
 * @param rows - From top to bottom; undefined is a row in which nothing is.
 * @param steps - Ascending; those of the rows unless told.
 */
export function cellsOverSteps(
  rows: readonly (IStepRow | undefined)[],
  steps: readonly number[] = stepsOf(rows)
): IStepCells {
  const [first, last] = [steps[0] ?? 0, steps[steps.length - 1] ?? 0];
  const gap = smallestGap(steps);
  const most = Math.max(2, Math.min(MOST_COLUMNS, Math.floor(MOST_CELLS / Math.max(1, rows.length))));
  const merged = (last - first) / gap + 1 > most;
  const spacing = merged ? (last - first) / (most - 1) : gap;
  const columns = Math.round((last - first) / spacing) + 1;
  const values = new Float64Array(columns * rows.length);
  const missing = new Uint8Array(columns * rows.length).fill(1);
  const greatest = rows.reduce((most, row) => Math.max(most, (row && greatestOf(row.values)) || 0), 0);
  rows.forEach((row, at) => {
    const middle = row ? middleOf(row.values) : 0;
    const says = (of: number): number => telling(of, middle, greatest);
    for (let place = 0; row && place < row.steps.length; place += 1) {
      const cell = at * columns + Math.round(((row.steps[place] ?? NaN) - first) / spacing);
      const value = row.values[place] ?? NaN;
      if (missing[cell] === 1 || says(value) > says(values[cell] ?? NaN)) {
        values[cell] = value;
      }
      missing[cell] = 0;
    }
  });
  const x = [first - spacing / 2, last + spacing / 2] as const;
  return { rows: rows.length, columns, values, missing, steps, spacing, x, merged };
}

/** Say that columns stand for several steps, where they do. */
export const mergedWords = (merged: boolean, t: Translate): string[] =>
  merged
    ? [
        t(
          'A column stands for several steps: the one that is not finite, the largest of all, or else the one farthest from the middle of its row is drawn.'
        )
      ]
    : [];

/** Let each cell of a row stand for the missing ones that follow it, up to a step. */
export function fillUpTo({ columns, missing, spacing, steps, values }: IStepCells, step: number): void {
  const [first, last] = [steps[0] ?? 0, steps[steps.length - 1] ?? 0];
  const upTo = Math.round((Math.min(step, last) - first) / spacing);
  for (let row = 0; row < values.length; row += columns) {
    for (let cell = row + 1; cell <= row + upTo; cell++) {
      if (missing[cell] === 1 && missing[cell - 1] === 0) {
        values[cell] = values[cell - 1] ?? NaN;
        missing[cell] = 0;
      }
    }
  }
}

function stepsOf(rows: readonly (IStepRow | undefined)[]): number[] {
  const steps = new Set<number>();
  for (const row of rows) {
    for (let at = 0; row && at < row.steps.length; at += 1) {
      steps.add(row.steps[at] ?? NaN);
    }
  }
  return [...steps].sort((a, b) => a - b);
}

/** The least distance of two neighbouring steps; 1 when there is only one. */
export function smallestGap(steps: readonly number[]): number {
  let least = Infinity;
  for (let at = 1; at < steps.length; at += 1) {
    least = Math.min(least, (steps[at] ?? 0) - (steps[at - 1] ?? 0));
  }
  return Number.isFinite(least) ? least : 1;
}

import { ColorScale, legend, lowMagnitude, type IColorLegend, type IColorLook } from '../../charts';
import { own, firstIndex } from '../../protocol/records';
import type { Translate } from './translate';

/** Leave a little air above and below; an axis without finite values shows 0 to 1. */
export function padded(range: readonly [number, number] | null, log: boolean): [number, number] {
  const [lo, hi] = range ?? [0, 1];
  if (log && lo > 0) {
    return lo === hi ? [lo / 2, hi * 2] : [lo / 1.1, hi * 1.1];
  }
  const air = (hi - lo || Math.abs(hi) || 1) * 0.05;
  return [lo >= 0 ? Math.max(0, lo - air) : lo - air, hi + air];
}

/** Name the template's scale: a logarithmic one needs numbers above 0. */
export function scaleOf(transform: 'linear' | 'log', low: number): 'linear' | 'log' | 'symlog' {
  return transform === 'linear' ? 'linear' : low > 0 ? 'log' : 'symlog';
}

/** What axes show, as the params of the templates say it. */
export const axisParams = (
  x: readonly [number, number],
  y: readonly [number, number]
): { x0: number; x1: number; y0: number; y1: number } => ({ x0: x[0], x1: x[1], y0: y[0], y1: y[1] });

/** Widen a range that is one point. */
export const wide = ([from, to]: readonly [number, number]): [number, number] =>
  from === to ? [from - 0.5, to + 0.5] : [from, to];

/** Least and greatest finite number of several lists; null where there is none. */
export function extentOf(parts: Iterable<ArrayLike<number>>): [number, number] | null {
  let [lo, hi] = [Infinity, -Infinity];
  for (const part of parts) {
    for (let at = 0; at < part.length; at += 1) {
      const each = part[at] ?? NaN;
      // Only finite numbers leave nothing of themselves.
      if (each - each === 0) {
        lo = each < lo ? each : lo;
        hi = each > hi ? each : hi;
      }
    }
  }
  return lo <= hi ? [lo, hi] : null;
}

/** A scale of values that are all above 0, which begins there. */
export function scaleFromZero(
  parts: readonly ArrayLike<number>[],
  transform: 'linear' | 'log',
  look: IColorLook
): ColorScale {
  const extent = extentOf(parts);
  const low = transform === 'log' ? lowMagnitude(parts) : NaN;
  return new ColorScale(extent && [Math.min(0, extent[0]), extent[1]], transform, low, look);
}

/** The ends of colours that an option locks; null where they follow the values. */
export function lockedRange([low, high]: readonly number[] = []): readonly [number, number] | null {
  return low === undefined || high === undefined ? null : [low, high];
}

/**
 * The strip next to a picture that says what its colours mean.
 *
 * @param unfinished Whether the picture holds cells that are not finite.
 * @param own Whether each plot has a scale of its own.
 */
export function colorStrip(scale: ColorScale, unfinished: boolean, t: Translate, own = false): IColorLegend {
  const words = { lowest: t('lowest'), highest: t('highest'), notFinite: t('not finite') };
  return legend(scale, unfinished, words, own);
}

/** Index of the last number that is not above `x` in ascending ones; -1 where all are. */
export function indexBefore(sorted: ArrayLike<number>, x: number): number {
  return firstIndex(sorted.length, at => !((sorted[at] as number) <= x)) - 1;
}

/** Index of the number nearest to `x` in ascending ones; -1 where there is none. */
export function nearestIndex(sorted: ArrayLike<number>, x: number): number {
  const before = indexBefore(sorted, x);
  const [left, right] = [sorted[before], sorted[before + 1]];
  return right !== undefined && (left === undefined || right - x < x - left) ? before + 1 : before;
}

/** A whole number between 0 and `count - 1`. */
export const hold = (value: number, count: number): number => Math.min(count - 1, Math.max(0, value));

/**
 * What a key moves a cursor by, across and down; undefined where it means nothing. `copy` stays where it is.
 */
export function moveOf(key: string): readonly [number, number] | undefined {
  return own(MOVES, key);
}

/** The edges of a cell one wide. */
export const around = (center: number): readonly [number, number] => [center - 0.5, center + 0.5];

export interface IGridCell {
  readonly column: number;
  readonly row: number;
  /** Number of the plot that it lies in, where there are several. */
  readonly plot?: number;
}

/**
 * Where a key leads among the cells of a grid; null where it means nothing, or there are none. The first key
 * shows where the cursor is: `first` is the cell at which it begins.
 */
export function moveAmongCells(
  key: string,
  before: IGridCell | null,
  { columns, rows }: { readonly columns: number; readonly rows: number },
  first: IGridCell
): IGridCell | null {
  const by = moveOf(key);
  if (by === undefined || columns === 0 || rows === 0) {
    return null;
  }
  const [across, down] = before ? by : [0, 0];
  const { column, row } = before ?? first;
  return { column: hold(column + across, columns), row: hold(row + down, rows) };
}

/** From which plot to which of several a key leads: the next, the one before, or none. */
export const turnOf = (key: string): number => Number(key === 'PageDown') - Number(key === 'PageUp');

const MOVES: Readonly<Record<string, readonly [number, number]>> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
  PageUp: [-10, 0],
  PageDown: [10, 0],
  Home: [-Infinity, 0],
  End: [Infinity, 0],
  copy: [0, 0]
};

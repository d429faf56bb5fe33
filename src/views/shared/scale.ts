import { ColorScale, legend, lowMagnitude, type IColorLegend, type IColorLook } from '../../charts';
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
 * Return the strip beside a picture that says what its colours mean.
 *
 * @param unfinished Whether the picture holds cells that are not finite.
 * @param own Whether each plot has a scale of its own.
 */
export function colorStrip(scale: ColorScale, unfinished: boolean, t: Translate, own = false): IColorLegend {
  const words = { lowest: t('lowest'), highest: t('highest'), notFinite: t('not finite') };
  return legend(scale, unfinished, words, own);
}

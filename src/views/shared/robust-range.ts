import { formatNumber } from '../../charts';
import type { INote } from './content';
import { extentOf } from './scale';
import type { Translate } from './translate';

/** Share of the values at either end that may lie outside. */
const OUTSIDE = 0.01;
/** By how much wider all values must lie than those within, for the range to be cut. */
const DWARFS = 2;
/** So many times what nearly all stay below, the greatest leaves them no room. */
const FAR = 20;
/** Most values that are looked at, evenly spaced. */
const MOST_SAMPLES = 8192;

/**
 * The range of all but the most extreme values, where these lie so far out that the others would have one
 * colour; null where the whole range tells them apart.
 */
export function robustRange(parts: readonly ArrayLike<number>[]): readonly [number, number] | null {
  const { finite, low, high } = sampled(parts);
  const at = (share: number): number => finite[Math.round(share * (finite.length - 1))] ?? NaN;
  const [from, to] = [at(OUTSIDE), at(1 - OUTSIDE)];
  return to > from && high - low > DWARFS * (to - from) ? [from, to] : null;
}

/** Propose a logarithmic scale where one value dwarfs the rest; nothing where it is chosen, or none does. */
export function logNotes(
  parts: readonly ArrayLike<number>[],
  transform: 'linear' | 'log',
  choose: (options: { transform: 'log' }) => void,
  t: Translate
): INote[] {
  if (transform === 'log' || !hasRoomTaken(parts)) {
    return [];
  }
  const { finite, low, high } = sampled(parts);
  const sizes = finite.map(Math.abs).sort();
  const most = sizes[Math.round((1 - OUTSIDE) * (sizes.length - 1))] ?? NaN;
  const times = Math.max(high, -low) / most;
  return times > FAR && most > 0 && Number.isFinite(times)
    ? [
        {
          text: t('One value is %1 × what 99 of 100 stay below.', formatNumber(times, 2)),
          action: { label: t('Draw a log scale'), run: () => choose({ transform: 'log' }) }
        }
      ]
    : [];
}

/**
 * Whether few values come near the greatest. Where many do nobody sorts them: a live run asks with every
 * picture.
 */
function hasRoomTaken(parts: readonly ArrayLike<number>[]): boolean {
  const [low, high] = extentOf(parts) ?? [Infinity, -Infinity];
  const greatest = Math.max(high, -low);
  let [near, all] = [0, 0];
  for (const part of parts) {
    all += part.length;
    for (let at = 0; at < part.length; at += 1) {
      const size = Math.abs(part[at] ?? NaN);
      near += size <= greatest && size * FAR >= greatest ? 1 : 0;
    }
  }
  return near <= 2 * OUTSIDE * all;
}

/** Finite values, ascending, of very many evenly spaced ones; least and greatest of all. */
function sampled(parts: readonly ArrayLike<number>[]): { finite: Float64Array; low: number; high: number } {
  const total = parts.reduce((sum, part) => sum + part.length, 0);
  const stride = Math.max(1, Math.ceil(total / MOST_SAMPLES));
  const finite = new Float64Array(Math.ceil(total / stride));
  const [low, high] = extentOf(parts) ?? [Infinity, -Infinity];
  let [count, kept] = [0, 0];
  for (const part of parts) {
    for (let at = 0; at < part.length; at += 1) {
      const value = part[at] ?? NaN;
      if (Number.isFinite(value)) {
        if (count % stride === 0) {
          finite[kept] = value;
          kept += 1;
        }
        count += 1;
      }
    }
  }
  return { finite: finite.subarray(0, kept).sort(), low, high };
}

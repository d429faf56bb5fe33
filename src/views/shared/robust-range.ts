/** Share of the values at either end that may lie outside. */
const OUTSIDE = 0.01;
/** By how much wider all values must lie than those within, for the range to be cut. */
const DWARFS = 2;
/** Most values that are looked at, evenly spaced. */
const MOST_SAMPLES = 8192;

/**
 * The range of all but the most extreme values, where these lie so far out that the others would have one
 * colour; null where the whole range tells them apart.
 */
export function robustRange(parts: readonly ArrayLike<number>[]): readonly [number, number] | null {
  const total = parts.reduce((sum, part) => sum + part.length, 0);
  const stride = Math.max(1, Math.ceil(total / MOST_SAMPLES));
  const finite: number[] = [];
  let [low, high, count] = [Infinity, -Infinity, 0];
  for (const part of parts) {
    for (let at = 0; at < part.length; at += 1) {
      const value = part[at] ?? NaN;
      if (Number.isFinite(value)) {
        [low, high] = [Math.min(low, value), Math.max(high, value)];
        if (count % stride === 0) {
          finite.push(value);
        }
        count += 1;
      }
    }
  }
  finite.sort((a, b) => a - b);
  const at = (share: number): number => finite[Math.round(share * (finite.length - 1))] ?? NaN;
  const [from, to] = [at(OUTSIDE), at(1 - OUTSIDE)];
  return to > from && high - low > DWARFS * (to - from) ? [from, to] : null;
}

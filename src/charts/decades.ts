/** Most values that are looked at, evenly spaced: more of them say the same. */
const MOST_SAMPLES = 4096;
/** Part of the magnitudes that may fall into the middle of a logarithmic scale. */
const BELOW = 0.05;
const [FEWEST, MOST] = [3, 9];

/**
 * Return the magnitude that 5 in 100 of the finite values other than zero stay below, or NaN where there is none. Of more than 4,096 values
 * evenly spaced ones are taken, counted through all parts.
 */
export function lowMagnitude(parts: readonly ArrayLike<number>[]): number {
  const total = parts.reduce((sum, part) => sum + part.length, 0);
  const stride = Math.max(1, Math.ceil(total / MOST_SAMPLES));
  const sizes: number[] = [];
  let skip = 0;
  for (const part of parts) {
    let at = skip;
    for (; at < part.length; at += stride) {
      const size = Math.abs(part[at] ?? NaN);
      if (Number.isFinite(size) && size > 0) {
        sizes.push(size);
      }
    }
    skip = at - part.length;
  }
  sizes.sort((a, b) => a - b);
  return sizes[Math.floor(BELOW * (sizes.length - 1))] ?? NaN;
}

/**
 * Return how many decades a logarithmic colour scale spans below its greatest magnitude, 3 to 9.
 *
 * @param low What `lowMagnitude` found; NaN for the fewest.
 */
export function decadesOf(top: number, low: number): number {
  const decades = Math.ceil(Math.log10(top / low) - 1e-9);
  return Number.isFinite(decades) ? Math.min(MOST, Math.max(FEWEST, decades)) : FEWEST;
}

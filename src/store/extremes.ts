/**
 * Places of the least and the greatest finite value, and of the first that stands for something not finite, ascending.
 *
 * @param isOdd - What is not finite beside the values that are not.
 */
export function extremesOf(
  values: ArrayLike<number>,
  isOdd: (place: number) => boolean = () => false
): number[] {
  let [low, high, odd] = [-1, -1, -1];
  for (let at = 0; at < values.length; at += 1) {
    const value = values[at] ?? NaN;
    const finite = Number.isFinite(value);
    odd = odd < 0 && (!finite || isOdd(at)) ? at : odd;
    low = finite && (low < 0 || value < (values[low] ?? 0)) ? at : low;
    high = finite && (high < 0 || value > (values[high] ?? 0)) ? at : high;
  }
  return [...new Set([low, high, odd])].filter(at => at >= 0).sort((a, b) => a - b);
}

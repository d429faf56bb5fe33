import { AggregateError } from './moment-merge';

/**
 * Mean of each point and the points before it.
 *
 * Non-finite points enter no mean and stay as they are, so that a spike to infinity is not spread over its neighbours. The sum is taken
 * afresh for each block of points: a running sum would keep the rounding of everything that ever passed through.
 *
 * @param values - Points in order.
 * @param points - How many points a mean is over, the point itself included; 0 or 1 leaves the values as they are.
 */
export function trailingMean(values: Float64Array, points: number): Float64Array {
  if (!Number.isInteger(points) || points < 0) {
    throw new AggregateError(`A trailing mean is over a whole number of points, and ${points} came.`);
  }
  if (points < 2) {
    return values.slice();
  }
  const means = new Float64Array(values.length);
  // Sums from here to the end of the block, and from the block's start to here: any window is one of each.
  const toEnd = new Float64Array(values.length);
  const countToEnd = new Float64Array(values.length);
  for (let index = values.length - 1; index >= 0; index -= 1) {
    const value = values[index] ?? 0;
    const finite = Number.isFinite(value);
    const last = (index + 1) % points === 0 || index === values.length - 1;
    toEnd[index] = (last ? 0 : (toEnd[index + 1] ?? 0)) + (finite ? value : 0);
    countToEnd[index] = (last ? 0 : (countToEnd[index + 1] ?? 0)) + (finite ? 1 : 0);
  }
  let fromStart = 0;
  let countFromStart = 0;
  values.forEach((value, index) => {
    const finite = Number.isFinite(value);
    if (index % points === 0) {
      fromStart = 0;
      countFromStart = 0;
    }
    fromStart += finite ? value : 0;
    countFromStart += finite ? 1 : 0;
    const first = index - points + 1;
    const whole = first < 0 || first % points === 0;
    const sum = fromStart + (whole ? 0 : (toEnd[first] ?? 0));
    const count = countFromStart + (whole ? 0 : (countToEnd[first] ?? 0));
    means[index] = finite ? sum / count : value;
  });
  return means;
}

import type { TrendOptions } from '../protocol/views.generated';
import type { IUnits } from './selection';

/** Name of an interval, as the contract's view options know it. */
export type Interval = Required<TrendOptions>['interval'];

const Z = 1.959963984540054;
const FEW = [12.706204736174698, 4.302652729749462, 3.182446305284263, 2.776445105197793, 2.570581835636314];

/**
 * The 0.975 quantile of Student's t: exact up to five degrees of freedom, from there on by the expansion of Cornish and Fisher
 * (Abramowitz and Stegun 26.7.5), which is right to three digits.
 */
export function studentT(freedom: number): number {
  const exact = FEW[freedom - 1];
  if (exact !== undefined) {
    return exact;
  }
  const first = (Z ** 3 + Z) / 4;
  const second = (5 * Z ** 5 + 16 * Z ** 3 + 3 * Z) / 96;
  const third = (3 * Z ** 7 + 19 * Z ** 5 + 17 * Z ** 3 - 15 * Z) / 384;
  return Z + first / freedom + second / freedom ** 2 + third / freedom ** 3;
}

/** Join the spreads of two sets of units, by the formula of Chan, Golub and LeVeque. */
export function joinUnits(a: IUnits, b: IUnits): IUnits {
  const count = a.count + b.count;
  if (count === 0) {
    return a;
  }
  const apart = b.mean - a.mean;
  return {
    count,
    mean: a.mean + (apart * b.count) / count,
    deviation: a.deviation + b.deviation + (apart * apart * a.count * b.count) / count
  };
}

/**
 * Half the width of the band about a mean: for `std` the standard deviation of the units, sqrt(D / n); for `ci95` t(n − 1) · s / sqrt(n) with
 * s = sqrt(D / (n − 1)). D is the sum of their squared deviations. NaN where there are too few.
 *
 * The interval takes the units for independent. Neighbouring positions of a text are not: then the effective number of them is smaller and
 * the true interval wider.
 */
export function halfWidth({ count, deviation }: IUnits, interval: Interval): number {
  switch (interval) {
    case 'none':
      return NaN;
    case 'std':
      return count > 0 ? Math.sqrt(deviation / count) : NaN;
    case 'ci95':
      return count > 1 ? (studentT(count - 1) * Math.sqrt(deviation / (count - 1))) / Math.sqrt(count) : NaN;
  }
}

/** A line to draw over one plot. */
export interface ITrace {
  readonly color: string;
  /** Place on the x axis, and part of the plot's height from its top; NaN breaks the line. */
  readonly points: readonly (readonly [number, number])[];
}

/**
 * Return where a value lies in a plot, as part of its height from the top.
 *
 * @param domain Values at the bottom and at the top.
 * @param scale As the template's `yScale`: Vega's `symlog` has a constant of 1.
 */
export function heightOf(value: number, domain: readonly [number, number], scale: string): number {
  const spread = (each: number): number =>
    scale === 'log'
      ? Math.log(each)
      : scale === 'symlog'
        ? Math.sign(each) * Math.log1p(Math.abs(each))
        : each;
  const [low, high] = domain.map(spread);
  return low === undefined || high === undefined ? NaN : 1 - (spread(value) - low) / (high - low);
}

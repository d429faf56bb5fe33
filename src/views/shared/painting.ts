/** Points of a line up to which each is marked. */
export const SPARSE = 30;

/** A line to paint: its points by ascending x. */
export interface IPaintedLine {
  readonly x: Float64Array;
  /** NaN breaks the line. */
  readonly value: Float64Array;
  /** Whether it lies faintly behind the others. */
  readonly isFaint?: true;
}

export interface IPainting {
  readonly lines: readonly IPaintedLine[];
  /** Of each line. */
  readonly colors: readonly string[];
  /** Of each line: pixels drawn and left out, in turn. */
  readonly dashes: readonly (readonly number[])[];
  readonly y: readonly [number, number];
  /** As the template's `yScale`. */
  readonly scale: string;
  /** What is shown of the x axis now, and all there is of it. */
  readonly shown: readonly [number, number];
  readonly full: readonly [number, number];
  /** Pixels of the plot. */
  readonly width: number;
  readonly height: number;
}

/** A line to draw over one plot. */
export interface ITrace {
  readonly color: string;
  /** Position on the x axis, and part of the plot's height from its top; NaN breaks the line. */
  readonly points: readonly (readonly [number, number])[];
}

/**
 * Where a value lies in a plot, as part of its height from the top. `domain` is bottom and top; `scale` the
 * template's `yScale`, of which Vega's `symlog` has a constant of 1.
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

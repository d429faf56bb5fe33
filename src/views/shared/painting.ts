/** A line to paint: its points by ascending x. */
export interface IPaintedLine {
  readonly x: Float64Array;
  /** NaN breaks the line. */
  readonly value: Float64Array;
  /** Whether it lies faintly behind the others. */
  readonly isFaint?: true;
}

/** What is painted where. */
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

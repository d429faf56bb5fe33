import { byName } from '../../../protocol/records';
import { indexAt } from '../../../aggregate';
import type { ITold } from '../../shared/change-words';
import { extentOf } from '../../shared/scale';

/** Numbers along a line: positions on the x axis, ascending, and values. NaN is a gap. */
export interface IPoints {
  readonly x: Float64Array;
  readonly value: Float64Array;
}

/** One line over steps, as it is drawn. All arrays have one length. */
export interface ILine extends IPoints {
  /** Tells the lines of a run apart; the same in every run. */
  readonly key: string;
  /** What tips call it. */
  readonly name: string;
  /** What the legend says: the line, or its run where one line is drawn of several runs. */
  readonly label: string;
  /**
   * What tells its entry of the legend from others, where that is not its key: its run where one line is
   * drawn of several runs.
   */
  readonly entry?: string;
  /** Number of its run: 0 is the view's own. */
  readonly run: number;
  /** Number of the first run of the same name, whose colour it has; that of its run when absent. */
  readonly group?: number;
  /** Null where it is not of one layer. */
  readonly layer: number | null;
  /** Number of its panel; 0 when absent. */
  readonly panel?: number;
  /** The numbers that the trailing mean of the same key goes over: drawn faintly, and written with it. */
  readonly isFaint?: true;
  readonly unit?: string;
  /** Significant digits that are written of a value; all when absent. */
  readonly digits?: number;
  readonly step: Float64Array;
  /** Steps, ascending, at which it begins anew: what lies before is not joined with them. */
  readonly starts: readonly number[];
  /** Whether it has points that are not here: the page asks for them where it needs them. */
  readonly isThin: boolean;
  /** Points that there are; as many as are here when absent. */
  readonly of?: number;
  readonly nonFinite: Float64Array;
  /** How far a value may be off; absent where that is nothing. */
  readonly error?: Float64Array;
  /** Values that entered; absent where nobody counts. */
  readonly count?: Float64Array;
  /** Half the width of the band about each value; absent where there is none. */
  readonly half?: Float64Array;
}

/** A line of numbers at places, ascending, which are no steps. */
export function lineAt(
  name: string,
  layer: number | null,
  places: ArrayLike<number>,
  values: ArrayLike<number>
): ILine {
  const x = Float64Array.from(places);
  return {
    key: name,
    name,
    label: name,
    run: 0,
    layer,
    step: x,
    x,
    value: Float64Array.from(values),
    starts: [],
    isThin: false,
    nonFinite: new Float64Array(x.length)
  };
}

const NEEDED = ['step', 'x', 'value', 'nonFinite'] as const;
const OPTIONAL = ['error', 'count', 'half'] as const;

/** Name of a column that goes over the points of a line. */
export type LineColumn = (typeof NEEDED)[number] | (typeof OPTIONAL)[number];

/** What a summary says of a line. */
export const toldOf = ({
  name,
  step,
  value,
  nonFinite,
  starts
}: Pick<ILine, 'name' | 'nonFinite' | 'starts' | 'step' | 'value'>): Omit<ITold, 'layer'> => ({
  where: name,
  steps: step,
  values: value,
  nonFinite,
  starts
});

/** Tell a line from all others of a picture. */
export const idOf = ({ run, key, isFaint }: Pick<ILine, 'isFaint' | 'key' | 'run'>): string =>
  `${run} ${isFaint ? 'faint' : 'line'} ${key}`;

export function mapColumns(
  line: ILine,
  change: (column: Float64Array, name: LineColumn) => Float64Array
): ILine {
  const optional = OPTIONAL.filter(name => line[name] !== undefined);
  return {
    ...line,
    ...byName(NEEDED, name => change(line[name], name)),
    ...byName(optional, name => change(line[name] ?? new Float64Array(), name))
  };
}

/**
 * Least and greatest finite value that is drawn, bands among it, of a span of the x axis or of all; null
 * where there is none.
 */
export function finiteRange(
  lines: readonly ILine[],
  span: readonly [number, number] = [-Infinity, Infinity]
): [number, number] | null {
  return extentOf(
    lines.flatMap(({ x, value, half }) => {
      const [from, to] = placesIn(x, span);
      const shown = value.subarray(from, to);
      return half
        ? [shown, ...[-1, 1].map(side => shown.map((each, at) => each + side * (half[from + at] ?? NaN)))]
        : [shown];
    })
  );
}

function placesIn(x: Float64Array, [from, to]: readonly [number, number]): [number, number] {
  const before = indexAt(x, from);
  return [x[before] === from ? before : before + 1, indexAt(x, to) + 1];
}

/** Ascending indices, above 0, at which a line begins anew. */
export function breaksOf({ starts, step }: Pick<ILine, 'starts' | 'step'>): number[] {
  const breaks: number[] = [];
  const begins = new Set(starts);
  for (let at = 1; begins.size > 0 && at < step.length; at += 1) {
    if (begins.has(step[at] ?? NaN)) {
      breaks.push(at);
    }
  }
  return breaks;
}

const BROKEN = new WeakMap<ILine, IPoints>();

/** A line's points with a gap wherever it begins anew. The same object each time. */
export function brokenPoints(line: ILine): IPoints {
  const known = BROKEN.get(line);
  if (known) {
    return known;
  }
  const breaks = breaksOf(line);
  let points: IPoints = line;
  if (breaks.length > 0) {
    const x = new Float64Array(line.x.length + breaks.length);
    const value = new Float64Array(x.length).fill(NaN);
    [...breaks, line.x.length].forEach((end, gaps) => {
      const from = gaps === 0 ? 0 : (breaks[gaps - 1] ?? 0);
      x.set(line.x.subarray(from, end), from + gaps);
      value.set(line.value.subarray(from, end), from + gaps);
      x[end + gaps] = line.x[end] ?? NaN;
    });
    points = { x, value };
  }
  BROKEN.set(line, points);
  return points;
}

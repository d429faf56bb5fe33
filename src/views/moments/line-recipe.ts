import { COLORS, type IRecipe, type Row } from '../../charts';
import type { IStretch } from './captions';
import { dashOf } from './colors';
import type { IMomentLine } from './line';
import { shortName } from './short-name';

/** Lines to draw. */
export interface ILinesWish {
  readonly lines: readonly IMomentLine[];
  readonly colors: readonly string[];
  readonly bad: readonly IStretch[];
  readonly x: readonly [number, number];
  readonly y: readonly [number, number];
  readonly texts: {
    readonly xTitle: string;
    readonly yTitle: string;
    readonly colorTitle: string;
    readonly yScale: string;
  };
}

/** Most entries of the legend; of more lines that many are named, spread over all. */
const MOST_ENTRIES = 14;
/** Most characters of a legend's entry: the template has room for no more. */
const MOST_LETTERS = 28;

/** Return the chart of lines. `pictures` instead of rows where the page paints them itself. */
export function lineRecipe(wish: ILinesWish, pictures: readonly Row[] | null): IRecipe {
  const { lines, colors, bad, x, y, texts } = wish;
  const key = legendOf(lines, colors);
  return {
    template: 'moment-lines',
    texts,
    params: { x0: x[0], x1: x[1], y0: y[0], y1: y[1], keyText: key.map(each => each.name) },
    datasets: {
      pictures: pictures ?? [],
      rows: pictures ? [] : lines.flatMap((line, at) => rowsOf(line, at, colors[at] ?? '#000')),
      nonfinite: bad.map(each => ({ ...each, color: COLORS.nonfinite[0] })),
      key: key.map(({ color }, place) => ({ place, color }))
    },
    height: 300
  };
}

function rowsOf(line: IMomentLine, number: number, color: string): Row[] {
  const rows = (x: Float64Array, values: Float64Array, id: number, opacity: number): Row[] =>
    Array.from(values, (value, at) => ({
      x: x[at],
      line: id,
      name: line.name,
      value: Number.isFinite(value) ? value : null,
      color,
      opacity,
      dash: dashOf(line.run),
      alone: Number.isFinite(value) && !Number.isFinite(values[at - 1]) && !Number.isFinite(values[at + 1])
    }));
  return [
    ...(line.raw ? rows(line.raw.x, line.raw.value, 2 * number, 0.25) : []),
    ...rows(line.x, line.value, 2 * number + 1, 1)
  ];
}

/** Name lines in the legend: all, or some that are spread over all. */
function legendOf(
  lines: readonly IMomentLine[],
  colors: readonly string[]
): { name: string; color: string }[] {
  const seen = new Set<string>();
  const each = lines
    .map(({ label }, at) => ({ label, color: colors[at] ?? '#000' }))
    .filter(({ label }) => !seen.has(label) && seen.add(label))
    .map(({ label, color }) => ({ name: shortName(label, MOST_LETTERS), color }));
  if (each.length <= MOST_ENTRIES) {
    return each;
  }
  const places = new Set(
    Array.from({ length: MOST_ENTRIES }, (_, at) => Math.round((at * (each.length - 1)) / (MOST_ENTRIES - 1)))
  );
  return each.filter((_, at) => places.has(at));
}

import { COLORS, type IRecipe, type Row } from '../../../charts';
import { shortName } from '../short-name';
import type { Translate } from '../translate';
import { dashOf } from './legend';
import { type ILine, brokenPoints } from './line';

/** Where values of lines are not finite, for each panel. */
export function badOf(lines: readonly ILine[]): IBadStretch[] {
  const panels = [...new Set(lines.map(line => line.panel ?? 0))];
  return panels.flatMap(panel => {
    const counts = new Map<number, number>();
    for (const line of lines.filter(each => (each.panel ?? 0) === panel && !each.isFaint)) {
      line.x.forEach((x, at) => {
        const count = line.nonFinite[at] ?? 0;
        if (count > 0) {
          counts.set(x, (counts.get(x) ?? 0) + count);
        }
      });
    }
    const all = [...counts].sort(([a], [b]) => a - b).map(([x, count]) => ({ x, x2: x, count }));
    return all.map(each => (panel > 0 ? { ...each, panel } : each));
  });
}

/** A stretch of the x axis in which values are not finite. */
export interface IBadStretch {
  readonly x: number;
  readonly x2: number;
  readonly count: number;
  /** Panel that it belongs to; 0 when absent. */
  readonly panel?: number;
}

/** Lines to draw. */
export interface ILinesWish {
  readonly lines: readonly ILine[];
  readonly colors: readonly string[];
  readonly bad: readonly IBadStretch[];
  readonly x: readonly [number, number];
  /** Values at the bottom and at the top of each panel. */
  readonly ys: readonly (readonly [number, number])[];
  readonly texts: {
    readonly xTitle: string;
    readonly yTitle: string;
    readonly colorTitle: string;
    readonly yScale: string;
    /** Vega expression for the labels of the x axis; whole numbers when absent. */
    readonly xLabel?: string;
    /** Vega expression for where they stand; at round numbers when absent. */
    readonly xTicks?: string;
  };
  /** What stands over each panel, where there are several. */
  readonly headers?: readonly string[];
}

/** Most entries of the legend; of more lines that many are named, spread over all. */
const MOST_ENTRIES = 14;
/** Most characters of a legend's entry: the template has room for no more. */
const MOST_LETTERS = 28;
/** Most colours of panels; then they begin again. */
const MOST_COLORS = 24;
const HEIGHTS = [300, 190, 140] as const;

/** Labels of an axis of steps, as a Vega expression: whole numbers only. */
export const WHOLE_NUMBERS =
  "datum.value % 1 === 0 ? join(split(format(datum.value, ',d'), ','), '\u2009') : ''";

/** Name the scale of values in a caption, where it is not literal. */
export const scaleWords = (scale: string, t: Translate): string[] =>
  scale === 'symlog' ? [t('The axis is logarithmic on both sides of zero.')] : [];

/** Return the chart of lines. `pictures` instead of rows where the page paints them itself. */
export function lineRecipe(wish: ILinesWish, pictures: readonly Row[] | null): IRecipe {
  const { lines, colors, bad, x, ys, headers = [] } = wish;
  const texts = { xLabel: WHOLE_NUMBERS, xTicks: 'null', ...wish.texts };
  const nonfinite = bad.map(each => ({ ...each, color: COLORS.nonfinite[0] }));
  const key = legendOf(lines, colors);
  const rows = pictures ? [] : lines.flatMap((line, at) => rowsOf(line, at, colors[at] ?? '#000'));
  if (headers.length > 1) {
    const keyColors = Array.from({ length: MOST_COLORS }, (_, at) => key[at % key.length]?.color ?? '#000');
    const first = (panel: number): ILine | undefined => lines.find(line => (line.panel ?? 0) === panel);
    const marks = nonfinite.map(each => {
      const { label = '', name = '' } = first(each.panel ?? 0) ?? {};
      return { panel: 0, ...each, bad: true, value: null, label, name, line: -1, opacity: 1, dash: [1, 0] };
    });
    return {
      template: 'line-panels',
      texts: { xTitle: texts.xTitle, xLabel: texts.xLabel, xTicks: texts.xTicks, yScale: texts.yScale },
      params: { x0: x[0], x1: x[1], ys, headers: { ...headers }, keyColors },
      datasets: { rows: [...rows, ...marks] },
      height: HEIGHTS[Math.min(headers.length, HEIGHTS.length) - 1] ?? HEIGHTS[0]
    };
  }
  const [y = [0, 1]] = ys;
  return {
    template: 'lines',
    texts,
    params: { x0: x[0], x1: x[1], y0: y[0], y1: y[1], keyText: key.map(each => each.name) },
    datasets: {
      band: lines.flatMap((line, at) => bandOf(line, at, colors[at] ?? '#000', y[0])),
      pictures: pictures ?? [],
      rows,
      nonfinite,
      key: key.map(({ color }, place) => ({ place, color }))
    },
    height: HEIGHTS[0]
  };
}

function rowsOf(line: ILine, number: number, color: string): Row[] {
  const { x, value: values } = brokenPoints(line);
  const { name, label, panel = 0, isFaint, run } = line;
  return Array.from(values, (value, at) => ({
    x: x[at],
    line: number,
    panel,
    name,
    label: shortName(label, MOST_LETTERS),
    value: Number.isFinite(value) ? value : null,
    color,
    opacity: isFaint ? 0.25 : 1,
    dash: dashOf(run),
    alone: Number.isFinite(value) && !Number.isFinite(values[at - 1]) && !Number.isFinite(values[at + 1])
  }));
}

function bandOf({ half, value, x, step, starts }: ILine, number: number, color: string, low: number): Row[] {
  if (half === undefined) {
    return [];
  }
  let line = number;
  return Array.from(value, (each, at) => {
    const width = half[at] ?? NaN;
    const known = Number.isFinite(each) && Number.isFinite(width);
    // A new area where the line begins anew.
    line += starts.includes(step[at] ?? NaN) ? 1 / (starts.length + 1) : 0;
    return {
      x: x[at],
      line,
      low: known ? Math.max(each - width, low) : null,
      high: known ? each + width : null,
      color
    };
  });
}

/** Name lines in the legend: all, or some that are spread over all. */
function legendOf(lines: readonly ILine[], colors: readonly string[]): { name: string; color: string }[] {
  const seen = new Set<string>();
  const each = lines
    .map(({ label, isFaint }, at) => ({ label, isFaint, color: colors[at] ?? '#000' }))
    .filter(({ label, isFaint }) => !isFaint && !seen.has(label) && seen.add(label))
    .map(({ label, color }) => ({ name: shortName(label, MOST_LETTERS), color }));
  if (each.length <= MOST_ENTRIES) {
    return each;
  }
  const places = new Set(
    Array.from({ length: MOST_ENTRIES }, (_, at) => Math.round((at * (each.length - 1)) / (MOST_ENTRIES - 1)))
  );
  return each.filter((_, at) => places.has(at));
}

import { indexAt } from '../../../aggregate';
import { formatFull, formatInteger, formatNumber, COLORS, type IRecipe, type Row } from '../../../charts';
import { besideWords } from '../../shared/pinned-step';
import { SPARSE } from '../../shared/painting';
import { hold, moveOf } from '../../shared/scale';
import { shortName } from '../../shared/short-name';
import type { ITip } from '../../shared/table';
import type { Translate } from '../../shared/translate';
import { dashOf } from './legend';
import { type ILine, brokenPoints } from './line';

/** Most lines that the tooltip lists. */
const MOST_LINES = 12;

/**
 * The reading of a line at a position: one of its points, there or the last one before; null while it is
 * asked for.
 */
export interface ILinePoint {
  /** What the point is a point of: the line itself, or more of it than is drawn. */
  readonly from: ILine;
  readonly at: number;
  /** Whether the point lies exactly there. */
  readonly isExact: boolean;
  /** The number that the trailing mean goes over there; absent where nothing is smoothed. */
  readonly raw?: number;
}

/** Say the value of a line at one of its points, with what is not finite there and how far it may be off. */
export function valueWords(
  line: Pick<ILine, 'count' | 'digits' | 'error' | 'nonFinite' | 'value'>,
  at: number,
  t: Translate,
  raw?: number,
  smoothing = 0
): string {
  const value = line.value[at] ?? NaN;
  if (line.count?.[at] === 0 && !Number.isFinite(value)) {
    return t('no data');
  }
  const error = line.error?.[at] ?? 0;
  const bad = line.nonFinite[at] ?? 0;
  const number = raw ?? value;
  const full = formatFull(line.digits ? Number(number.toPrecision(line.digits)) : number);
  return [
    full,
    ...(raw === undefined
      ? []
      : [t('(mean of %1: %2)', smoothing, formatFull(Number(value.toPrecision(6))))]),
    ...(error > 0 ? [`± ${formatNumber(error, 2)}`] : []),
    ...(bad > 0 ? [t('(%1 not finite)', formatInteger(bad))] : []),
    ...(Number.isNaN(bad) ? [t('(some not finite)')] : [])
  ].join(' ');
}

/** Say a reading: the value there, or when it was measured last. */
export function readingWords({ from, at, isExact, raw }: ILinePoint, t: Translate, smoothing = 0): string {
  const words = valueWords(from, at, t, raw, smoothing);
  return isExact ? words : t('measured last at step %1: %2', formatInteger(from.step[at] ?? NaN), words);
}

/** The reading of a line that is drawn with all of its points; null where it has not begun. */
export function readLine(line: ILine, x: number, from = line): ILinePoint | null {
  const at = indexAt(from.x, x);
  return at < 0 ? null : { from, at, isExact: from.x[at] === x };
}

/**
 * List what lines say at a position: the one that is pointed at first, then those nearest to it.
 *
 * @param read - The reading of a line there; `null` where it has not begun.
 * @param there - The same of the pinned step; null where there is none.
 */
export function tipLines(
  lines: readonly ILine[],
  read: (line: ILine) => ILinePoint | 'asked' | null,
  near: ILine | null,
  color: (line: ILine) => string,
  t: Translate,
  smoothing = 0,
  there: ((line: ILine) => ILinePoint | 'asked' | null) | null = null
): ITip['lines'] {
  const found = lines.flatMap(line => {
    const reading = line.isFaint ? null : read(line);
    return reading === null ? [] : [{ line, reading }];
  });
  const valueOf = (reading: ILinePoint | 'asked'): number =>
    reading === 'asked' ? NaN : (reading.from.value[reading.at] ?? NaN);
  const nearest = found.find(each => each.line === near);
  const middle = nearest ? valueOf(nearest.reading) : NaN;
  const away = ({ line, reading }: (typeof found)[number]): number =>
    line === near ? -1 : Math.abs(valueOf(reading) - middle);
  if (found.length > MOST_LINES && Number.isFinite(middle)) {
    found.sort((a, b) => (away(a) || 0) - (away(b) || 0));
  }
  // Of many lines only those that have a value there are told.
  const tips =
    found.length > MOST_LINES ? found.filter(({ reading }) => reading === 'asked' || reading.isExact) : found;
  const listed = tips.slice(0, MOST_LINES).map(({ line, reading }) => ({
    name: line === near && found.length > 1 ? `▸ ${line.name}` : line.name,
    value: reading === 'asked' ? '…' : readingWords(reading, t, smoothing),
    color: color(line),
    ...(there && { beside: thereWords(reading, there(line), t) })
  }));
  return tips.length > MOST_LINES
    ? [...listed, { name: t('%1 more', formatInteger(tips.length - MOST_LINES)), value: '' }]
    : listed;
}

/** Say what a line says at the pinned step, and how far its value is from there. */
function thereWords(
  reading: ILinePoint | 'asked',
  there: ILinePoint | 'asked' | null,
  t: Translate
): readonly [string, string] {
  if (there === null || there === 'asked') {
    return [there === null ? '–' : '…', ''];
  }
  const shown = ({ raw, from, at }: ILinePoint): number => raw ?? from.value[at] ?? NaN;
  const now = reading === 'asked' || !reading.isExact ? NaN : shown(reading);
  return besideWords(now, shown(there), t, there.isExact ? null : (there.from.step[there.at] ?? NaN));
}

/**
 * A position on a line: a number of a line, and where on the x axis. It stays when the line is thinned out in
 * another way.
 */
export interface ICursor {
  readonly line: number;
  readonly x: number;
}

/** Move a cursor by a key: along its line, or to the same position of another one. */
export function moveAmong(key: string, before: ICursor | null, lines: readonly ILine[]): ICursor | null {
  const by = moveOf(key);
  if (by === undefined || lines.length === 0) {
    return null;
  }
  const line = hold((before?.line ?? 0) + (before ? by[1] : 0), lines.length);
  const xs = lines[line]?.x ?? [];
  if (before === null || by[0] === 0) {
    return { line, x: before?.x ?? xs[xs.length - 1] ?? NaN };
  }
  const at = indexAt(xs, before.x);
  // Without a point at the cursor the first ones before and after it are a step away.
  const from = xs[at] !== before.x && by[0] < 0 ? at + 1 : at;
  return { line, x: xs[hold(from + by[0], xs.length)] ?? before.x };
}

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

export interface ILinesRequest {
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
/** Most characters of a legend's entry: the template has no space for more. */
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
export function lineRecipe(wish: ILinesRequest, pictures: readonly Row[] | null): IRecipe {
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
  const isSparse = values.length <= SPARSE;
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
    alone:
      Number.isFinite(value) &&
      (isSparse || (!Number.isFinite(values[at - 1]) && !Number.isFinite(values[at + 1])))
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
  const indices = new Set(
    Array.from({ length: MOST_ENTRIES }, (_, at) => Math.round((at * (each.length - 1)) / (MOST_ENTRIES - 1)))
  );
  return each.filter((_, at) => indices.has(at));
}

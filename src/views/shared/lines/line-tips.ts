import { formatFull, formatInteger, formatNumber } from '../../../charts';
import { placeAt } from '../../../aggregate';
import { hold, moveOf } from '../places';
import { besideWords } from '../pinned-step';
import type { ITip } from '../table';
import type { Translate } from '../translate';
import type { ILine } from './line';

/** Most lines that the tooltip lists. */
const MOST_LINES = 12;

/** What a line says at a place: one of its points, there or the last one before; null while it is asked for. */
export interface ILinePoint {
  /** What the point is a point of: the line itself, or more of it than is drawn. */
  readonly from: ILine;
  readonly at: number;
  /** Whether the point lies at the very place. */
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
  const told = raw ?? value;
  const full = formatFull(line.digits ? Number(told.toPrecision(line.digits)) : told);
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

/** Say what a line says at a place: its value there, or when it was measured last. */
export function readingWords({ from, at, isExact, raw }: ILinePoint, t: Translate, smoothing = 0): string {
  const words = valueWords(from, at, t, raw, smoothing);
  return isExact ? words : t('measured last at step %1: %2', formatInteger(from.step[at] ?? NaN), words);
}

/** What a line that is drawn with all of its points says at a place; null where it has not begun. */
export function readLine(line: ILine, x: number, from = line): ILinePoint | null {
  const at = placeAt(from.x, x);
  return at < 0 ? null : { from, at, isExact: from.x[at] === x };
}

/**
 * List what lines say at a place: the one that is pointed at first, then those nearest to it.
 *
 * @param read - What a line says there; `null` where it has not begun.
 * @param there - The same of the pinned step; null where there is none beside.
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
  const told =
    found.length > MOST_LINES ? found.filter(({ reading }) => reading === 'asked' || reading.isExact) : found;
  const listed = told.slice(0, MOST_LINES).map(({ line, reading }) => ({
    name: line === near && found.length > 1 ? `▸ ${line.name}` : line.name,
    value: reading === 'asked' ? '…' : readingWords(reading, t, smoothing),
    color: color(line),
    ...(there && { beside: thereWords(reading, there(line), t) })
  }));
  return told.length > MOST_LINES
    ? [...listed, { name: t('%1 more', formatInteger(told.length - MOST_LINES)), value: '' }]
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
  const told = ({ raw, from, at }: ILinePoint): number => raw ?? from.value[at] ?? NaN;
  const now = reading === 'asked' || !reading.isExact ? NaN : told(reading);
  return besideWords(now, told(there), t, there.isExact ? null : (there.from.step[there.at] ?? NaN));
}

/** A place on a line: a number of a line, and where on the x axis. It stays when the line is thinned out in another way. */
export interface ICursor {
  readonly line: number;
  readonly x: number;
}

/** Move a cursor by a key: along its line, or to the same place of another one. */
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
  const at = placeAt(xs, before.x);
  // Where the line has no point at the cursor, the first one before it and the first one after it are a step away.
  const from = xs[at] !== before.x && by[0] < 0 ? at + 1 : at;
  return { line, x: xs[hold(from + by[0], xs.length)] ?? before.x };
}

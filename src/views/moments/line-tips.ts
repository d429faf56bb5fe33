import { formatFull, formatInteger, formatNumber } from '../../charts';
import { hold, moveOf, placeNear } from '../shared/places';
import type { ITip } from '../shared/tip';
import type { Translate } from '../shared/translate';
import type { IMomentLine } from './line';

/** Most lines that the tooltip lists. */
const MOST_LINES = 12;

/** Say the value of a line at one of its points, with what is not finite there and how far it may be off. */
export function valueWords(line: IMomentLine, at: number, t: Translate): string {
  const value = line.value[at] ?? NaN;
  if (line.count[at] === 0 && !Number.isFinite(value)) {
    return t('no data');
  }
  const error = line.error[at] ?? 0;
  const bad = line.nonFinite[at] ?? 0;
  return [
    formatFull(Number(value.toPrecision(9))),
    ...(error > 0 ? [`± ${formatNumber(error, 2)}`] : []),
    ...(bad > 0 ? [t('(%1 not finite)', formatInteger(bad))] : []),
    ...(Number.isNaN(bad) ? [t('(some not finite)')] : [])
  ].join(' ');
}

/** List the lines that have a point at a place: the one that is pointed at first, then those nearest to it. */
export function tipLines(
  lines: readonly IMomentLine[],
  x: number,
  near: IMomentLine | null,
  color: (line: IMomentLine) => string,
  t: Translate
): ITip['lines'] {
  const found = lines
    .map(line => ({ line, at: placeNear(line.x, x) }))
    .filter(({ line, at }) => line.x[at] === x);
  const middle = near ? (near.value[placeNear(near.x, x)] ?? NaN) : NaN;
  const away = ({ line, at }: { line: IMomentLine; at: number }): number =>
    line === near ? -1 : Math.abs((line.value[at] ?? NaN) - middle);
  if (found.length > MOST_LINES && Number.isFinite(middle)) {
    found.sort((a, b) => (away(a) || 0) - (away(b) || 0));
  }
  const listed = found.slice(0, MOST_LINES).map(({ line, at }) => ({
    name: line === near && found.length > 1 ? `▸ ${line.name}` : line.name,
    value: valueWords(line, at, t),
    color: color(line)
  }));
  return found.length > MOST_LINES
    ? [...listed, { name: t('%1 more', formatInteger(found.length - MOST_LINES)), value: '' }]
    : listed;
}

/** A point of a line by its places. */
export interface IPoint {
  readonly line: number;
  readonly at: number;
}

/** Move a point by a key: along its line, or to the same place of another one. */
export function moveAmong(key: string, before: IPoint | null, lines: readonly IMomentLine[]): IPoint | null {
  const by = moveOf(key);
  if (by === undefined || lines.length === 0) {
    return null;
  }
  const from = lines[hold(before?.line ?? 0, lines.length)];
  const line = hold((before?.line ?? 0) + (before ? by[1] : 0), lines.length);
  const to = lines[line];
  if (from === undefined || to === undefined) {
    return null;
  }
  const at = before ? placeNear(to.x, from.x[hold(before.at, from.x.length)] ?? 0) : to.x.length - 1;
  return { line, at: hold(at + (before ? by[0] : 0), to.x.length) };
}

import { formatInteger, formatNumber } from '../../charts';
import { courseOf, type ICourse, type IDeparture } from './course';
import { layerWords } from './layers';
import { largestMove, type IMove, movesOf, type ISeries } from './moves';
import type { Translate } from './translate';

/** What is told of one of several series. Its number in the place of a layer is its own. */
export interface ITold extends ISeries {
  /** What a sentence calls it. */
  readonly where: string;
  /** Values at each step that were not finite; those of `values` when absent. */
  readonly nonFinite?: ArrayLike<number>;
  /** Steps at which it begins anew: steps before them are missing, or something else was measured. */
  readonly starts?: readonly number[];
}

/** Names several series in a sentence. */
type Naming = (told: readonly ITold[]) => string;

/** Name series by their layers. */
export const layerNaming =
  (t: Translate): Naming =>
  told =>
    layerWords(
      told.map(each => each.layer),
      t
    );

/** Name one series by its name, and of several say how many they are. */
export const countNaming =
  (t: Translate): Naming =>
  told =>
    told.length === 1 ? (told[0]?.where ?? '') : t('%1 series', formatInteger(told.length));

/**
 * Say what the series of one quantity did, a sentence each: what is not finite first, the strongest move or
 * between what they stayed, the largest departure beside it, and the steps without values.
 *
 * @param names Names those that did likewise.
 * @param leads Whether the departure stands before the move: where few words are seen.
 */
export function seriesWords(
  name: string,
  told: readonly ITold[],
  names: Naming,
  t: Translate,
  leads = false
): string {
  return told.length === 0
    ? ''
    : [...firstBadOf(told, t), ...courseWords(name, told, names, t, leads), ...gapsOf(told, names, t)].join(
        ' '
      );
}

function courseWords(
  name: string,
  told: readonly ITold[],
  names: Naming,
  t: Translate,
  leads: boolean
): string[] {
  const found = movesOf(told);
  if (found === null) {
    return [t('%1 has too few finite values to say how it moved.', name)];
  }
  const { strongest, isSteady, likewise, departed, low, high } = found;
  const whereOf = ({ layer }: { layer: number }): string =>
    told.find(each => each.layer === layer)?.where ?? '';
  if (isSteady) {
    const steps = told.flatMap(each => [each.steps[0], each.steps[each.steps.length - 1]]);
    const known = steps.filter(step => step !== undefined);
    const ends = [formatInteger(Math.min(...known)), formatInteger(Math.max(...known)), names(told)];
    const [from, to] = [formatNumber(low), formatNumber(high)];
    return [
      from === to
        ? t('%1 stayed at %2 from step %3 to %4 in %5.', name, from, ...ends)
        : told.length === 1
          ? t('%1 stayed between %2 and %3 from step %4 to %5 in %6.', name, from, to, ...ends)
          : t(
              '%1 stayed about the same from step %4 to %5 in %6: values of %2 to %3.',
              name,
              from,
              to,
              ...ends
            )
    ];
  }
  const layers = new Set(likewise.map(move => move.layer));
  const others = layers.size > 0 ? names(told.filter(({ layer }) => layers.has(layer))) : null;
  const moved = moveWords(name, strongest, whereOf(strongest), others, t);
  if (departed === null) {
    return [moved];
  }
  const { departure, layer } = departed;
  return leads
    ? [departureWords(departure, t, whereOf(departed), name), moved]
    : [moved, departureWords(departure, t, layer === strongest.layer ? undefined : whereOf(departed))];
}

/** Say what a statistic of layers did. */
export const changeWords = (
  name: string,
  series: readonly Omit<ITold, 'where'>[],
  t: Translate,
  leads = false
): string =>
  seriesWords(
    name,
    series.map(each => ({ ...each, where: layerWords([each.layer], t) })),
    layerNaming(t),
    t,
    leads
  );

/** Say what one series did, and which others did likewise: `others` in words, null where there are none. */
function moveWords(
  name: string,
  { rises, from, to, first, last, back, end }: IMove,
  where: string,
  others: string | null,
  t: Translate
): string {
  const ended =
    back !== null
      ? t(', and was back at step %1', formatInteger(back))
      : end === null
        ? ''
        : t(', and ended at %1 at step %2', formatNumber(end.value), formatInteger(end.step));
  return t(
    rises
      ? '%1 rose from %2 to %3 between step %4 and %5 in %6%7%8.'
      : '%1 fell from %2 to %3 between step %4 and %5 in %6%7%8.',
    name,
    formatNumber(from),
    formatNumber(to),
    formatInteger(first),
    formatInteger(last),
    where,
    others === null ? '' : t(', likewise in %1', others),
    ended
  );
}

/** Share of a departure within which of its level it must end to be back. */
const BACK = 0.2;

/**
 * Say how a series left its course and came back, or where it came to.
 *
 * @param name Names it where the sentence is the first one.
 */
function departureWords(
  { from, peak, back }: IDeparture,
  t: Translate,
  where?: string,
  name?: string
): string {
  const rises = peak.value > from.value;
  const isBack = Math.abs(back.value - from.value) <= BACK * Math.abs(peak.value - from.value);
  let way = rises ? t('On the way it rose from') : t('On the way it fell from');
  if (name !== undefined) {
    const subject = where === undefined ? name : t('%1 in %2', name, where);
    way = rises ? t('%1 rose from', subject) : t('%1 fell from', subject);
  } else if (where !== undefined) {
    way = rises ? t('In %1 it rose from', where) : t('In %1 it fell from', where);
  }
  const end = isBack
    ? t('and was back at step %1', formatInteger(back.step))
    : t('and came to %1 at step %2', formatNumber(back.value), formatInteger(back.step));
  return t(
    '%1 %2 at step %3 to %4 at step %5, %6.',
    way,
    formatNumber(from.value),
    formatInteger(from.step),
    formatNumber(peak.value),
    formatInteger(peak.step),
    end
  );
}

/** Share of the larger end by which a scalar must differ at its ends to be said to fall or rise. */
const SAME = 0.01;

/** Share of its range by which it must differ there. */
const NET = 0.5;

/** The most gaps of one scalar that are named. */
const MOST_GAPS = 2;

/** A scalar as it is told. */
export interface IScalarTold {
  readonly name: string;
  readonly step: ArrayLike<number>;
  readonly value: ArrayLike<number>;
  readonly unit?: string;
  /** Steps at which the line begins anew because steps before them are missing. */
  readonly starts?: readonly number[];
}

/**
 * Say what scalars did, each on its own; what is not finite stands before everything else.
 *
 * @param leads Whether departures stand before the rest: where few words are seen.
 */
export function scalarsWords(lines: readonly IScalarTold[], t: Translate, leads = false): string {
  const courses = lines.map(line => ({ line, course: courseOf({ steps: line.step, values: line.value }) }));
  const bad = courses
    .flatMap(({ line, course }) => (course.bad && course.start ? [{ name: line.name, ...course.bad }] : []))
    .sort((a, b) => a.step - b.step);
  return [
    ...bad.map(each => badWords(each.name, each, t)),
    ...(leads
      ? courses.flatMap(({ line: { name }, course: { departure } }) =>
          departure ? [departureWords(departure, t, undefined, name)] : []
        )
      : []),
    ...courses.map(({ line, course }) => scalarWords(line, course, t, !leads))
  ].join(' ');
}

/**
 * Say where a scalar went and what happened on the way: its ends, where most of a sudden change lies, the
 * largest departure with its step, and steps without a value.
 */
function scalarWords(
  { name, step: steps, value: values, unit = '', starts = [] }: IScalarTold,
  { start, end, low, high, departure }: ICourse,
  t: Translate,
  tellsDeparture: boolean
): string {
  if (start === null || end === null) {
    return t('%1 has no finite value.', name);
  }
  const sentences: string[] = [];
  const at = (step: number): string => formatInteger(step);
  const [from, to] = [start.value, end.value];
  const change = Math.abs(to - from);
  // What comes and goes by more than it went is noise about where it stayed.
  const isSame =
    change <= SAME * Math.max(Math.abs(from), Math.abs(to)) ||
    (departure === null && change < NET * (high - low));
  if (start.step === end.step) {
    sentences.push(t('%1 is %2 %3 at step %4.', name, formatNumber(from), unit, at(start.step)));
  } else if (isSame) {
    sentences.push(
      t(
        departure
          ? '%1 began at %2 and ended at %3 %4, from step %5 to %6.'
          : '%1 stayed between %2 and %3 %4 from step %5 to %6.',
        name,
        formatNumber(departure ? from : low),
        formatNumber(departure ? to : high),
        unit,
        at(start.step),
        at(end.step)
      )
    );
  } else {
    const move = largestMove({ layer: 0, steps, values });
    const isSudden = move?.back === null && move.last - move.first < (end.step - start.step) / 10;
    sentences.push(
      t(
        to < from
          ? '%1 fell from %2 to %3 %4 between step %5 and %6%7.'
          : '%1 rose from %2 to %3 %4 between step %5 and %6%7.',
        name,
        formatNumber(from),
        formatNumber(to),
        unit,
        at(start.step),
        at(end.step),
        isSudden && move.rises === to > from
          ? t(', most of it between step %1 and %2', at(move.first), at(move.last))
          : ''
      )
    );
  }
  if (departure && tellsDeparture) {
    sentences.push(departureWords(departure, t));
  }
  return [...sentences, ...gapWords(gapsIn(steps, starts), null, t)].join(' ').replace(/ {2}/g, ' ');
}

/** Where values were not finite first, and whether none after it was. */
interface IBadAt {
  readonly step: number;
  readonly where: string;
  readonly stays?: boolean;
}

/** Say where values were not finite first; nothing where they all are. */
export function firstBadWords(found: readonly IBadAt[], t: Translate): string[] {
  const [first] = [...found].sort((a, b) => a.step - b.step);
  return first
    ? [
        t(
          first.stays ? 'Not finite from step %1 on in %2.' : 'Not finite first at step %1 in %2.',
          formatInteger(first.step),
          first.where
        )
      ]
    : [];
}

function firstBadOf(told: readonly ITold[], t: Translate): string[] {
  const found = told.flatMap(({ steps, values, nonFinite, where }): IBadAt[] => {
    const isBad = (at: number): boolean => {
      const value = values[at] ?? NaN;
      return nonFinite ? (nonFinite[at] ?? 0) > 0 || Math.abs(value) === Infinity : !Number.isFinite(value);
    };
    const last = steps.length - 1;
    let [first, lastGood] = [0, last];
    while (first <= last && !isBad(first)) {
      first += 1;
    }
    if (first > last) {
      return [];
    }
    while (lastGood > first && isBad(lastGood)) {
      lastGood -= 1;
    }
    return [{ step: steps[first] ?? NaN, where, stays: first < last && lastGood === first }];
  });
  return firstBadWords(found, t);
}

/** Say what a series is where it is not finite. */
function badWords(name: string, { step, value, stays }: ICourse['bad'] & object, t: Translate): string {
  return t(
    stays ? '%1 is %2 from step %3 on.' : '%1 is %2 first at step %3.',
    name,
    Number.isNaN(value) ? 'NaN' : value > 0 ? '∞' : '−∞',
    formatInteger(step)
  );
}

type Gap = readonly [last: number, next: number];

/** How many times the least distance of its steps a gap is wide. */
const WIDER = 1.5;

/** The steps before and after each gap. A line that begins anew at the very next step has none there. */
function gapsIn(steps: ArrayLike<number>, starts: readonly number[]): Gap[] {
  if (starts.length === 0) {
    return [];
  }
  const begins = new Set(starts);
  const all = Array.from(steps);
  const pairs = all.slice(1).map((next, at): Gap => [all[at] ?? NaN, next]);
  const least = pairs.reduce((least, [last, next]) => Math.min(least, next - last), Infinity);
  return pairs.filter(([last, next]) => begins.has(next) && next - last > WIDER * least);
}

/** Say where series have no values: all of them, or else the one with the widest gap. */
function gapsOf(told: readonly ITold[], names: Naming, t: Translate): string[] {
  const gaps = told.map(({ steps, starts = [] }) => gapsIn(steps, starts));
  const [first = []] = gaps;
  const isCommon = gaps.every(each => String(each) === String(first));
  if (isCommon) {
    return gapWords(first, told.length === 1 ? null : names(told), t);
  }
  const width = (of: readonly Gap[]): number => of.reduce((sum, [last, next]) => sum + next - last, 0);
  const at = gaps.map(width).reduce((best, each, index, all) => (each > (all[best] ?? 0) ? index : best), 0);
  return gapWords(gaps[at] ?? [], told[at]?.where ?? null, t);
}

function gapWords(gaps: readonly Gap[], where: string | null, t: Translate): string[] {
  const named = gaps.slice(0, MOST_GAPS).map(([last, next]) => {
    const steps = [formatInteger(last), formatInteger(next)];
    return where === null
      ? t('It has no value between step %1 and %2.', ...steps)
      : t('There is no value between step %1 and %2 in %3.', ...steps, where);
  });
  return gaps.length > MOST_GAPS
    ? [...named, t('More such gaps: %1.', formatInteger(gaps.length - MOST_GAPS))]
    : named;
}

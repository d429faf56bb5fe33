import { formatInteger, formatNumber } from '../../charts';
import { courseOf, type ICourse } from './course';
import { layerWords } from './layers';
import type { Translate } from './translate';

/** One layer's statistic over steps; NaN where there was nothing finite. */
export interface ISeries {
  layer: number;
  steps: ArrayLike<number>;
  values: ArrayLike<number>;
}

/** The largest sustained change of a series: its values at the steps where most of it began and was over. */
export interface IMove {
  layer: number;
  rises: boolean;
  first: number;
  from: number;
  last: number;
  to: number;
  /** Step at which a departure was over; null where the series stayed where it went. */
  back: number | null;
  /** Smallest and largest value of the whole series. */
  low: number;
  high: number;
  /** `high` less `low`. */
  size: number;
}

/** Share of the larger magnitude that a change must reach to be called one. */
const STEADY = 0.1;

/** Share of a change that must be over at its ends: the tails of a slow approach are left out. */
const TAIL = 0.05;

/**
 * Return the largest rise or fall of a series, cut to where most of it happens; null when fewer than two
 * values are finite.
 */
function largestMove({ layer, steps, values }: ISeries): IMove | null {
  let [low, high]: [number, number] = [-1, -1];
  let best: { at: number; to: number; size: number } | null = null;
  for (let index = 0; index < values.length; index++) {
    const value = values[index] ?? NaN;
    if (!Number.isFinite(value)) {
      continue;
    }
    low = low < 0 || value < (values[low] ?? 0) ? index : low;
    high = high < 0 || value > (values[high] ?? 0) ? index : high;
    for (const at of [low, high]) {
      const size = Math.abs(value - (values[at] ?? 0));
      if (best === null || size > best.size) {
        best = { at, to: index, size };
      }
    }
  }
  if (best === null || best.at === best.to) {
    return null;
  }
  const { size } = best;
  const [begin, goal] = [values[best.at] ?? 0, values[best.to] ?? 0];
  const share = (index: number): number => Math.abs((values[index] ?? NaN) - begin) / (size || 1);
  let [start, end] = [best.at, best.to];
  for (let index = best.at; index < best.to; index++) {
    start = share(index) <= TAIL ? index : start;
  }
  for (let index = best.to; index > start; index--) {
    end = share(index) >= 1 - TAIL ? index : end;
  }
  const { departure } = courseOf({ steps, values });
  const peak = steps[best.to];
  return {
    layer,
    back: departure?.peak.step === peak ? (departure?.back.step ?? null) : null,
    rises: goal > begin,
    first: steps[start] ?? 0,
    from: values[start] ?? NaN,
    last: steps[end] ?? 0,
    to: values[end] ?? NaN,
    low: Math.min(begin, goal),
    high: Math.max(begin, goal),
    size
  };
}

/** What several series did. */
export interface IMoves {
  readonly strongest: IMove;
  /** Whether no series moved by a share that is worth the word. */
  readonly isSteady: boolean;
  /** Those that went the same way at the same time, at least half as far, but for the strongest itself. */
  readonly likewise: readonly IMove[];
  /** Smallest and largest value of all series. */
  readonly low: number;
  readonly high: number;
}

/** Find the strongest move of several series; null where none has two finite values. */
export function movesOf(series: readonly ISeries[]): IMoves | null {
  const moves = series.map(largestMove).filter(move => move !== null);
  const moved = moves.filter(({ low, high, size }) => size >= STEADY * Math.max(-low, high));
  const isSteady = moved.length === 0;
  const [strongest] = (isSteady ? moves : moved).sort((a, b) => b.size - a.size);
  if (strongest === undefined) {
    return null;
  }
  return {
    strongest,
    isSteady,
    low: Math.min(...moves.map(move => move.low)),
    high: Math.max(...moves.map(move => move.high)),
    likewise: moved.filter(
      move =>
        move !== strongest &&
        move.rises === strongest.rises &&
        move.size >= strongest.size / 2 &&
        move.first <= strongest.last &&
        move.last >= strongest.first
    )
  };
}

/**
 * Say what a statistic did: `rms rose from 0.31 to 0.98 between step 900 and 1 100 in layer 3, likewise in
 * layer 4`. The numbers are those of the very steps, in the layer that moved most; layers that moved the same
 * way at the same time are named after it.
 */
export function changeWords(name: string, series: readonly ISeries[], t: Translate): string {
  const found = movesOf(series);
  if (found === null) {
    return series.length === 0 ? '' : t('%1 has too few finite values to say how it moved.', name);
  }
  const { strongest, isSteady, likewise, low, high } = found;
  if (isSteady) {
    const steps = series.flatMap(each => [each.steps[0], each.steps[each.steps.length - 1]]);
    const known = steps.filter(step => step !== undefined);
    return t(
      '%1 stayed between %2 and %3 from step %4 to %5 in %6.',
      name,
      formatNumber(low, 3),
      formatNumber(high, 3),
      formatInteger(Math.min(...known)),
      formatInteger(Math.max(...known)),
      layerWords(series.map(each => each.layer))
    );
  }
  const others = likewise.map(move => move.layer);
  return moveWords(
    name,
    strongest,
    layerWords([strongest.layer]),
    others.length > 0 ? layerWords(others) : null,
    t
  );
}

/**
 * Say what one series did, and which others did likewise.
 *
 * @param where The series in words.
 * @param others The others in words; null where there are none.
 */
export function moveWords(
  name: string,
  { rises, from, to, first, last, back }: IMove,
  where: string,
  others: string | null,
  t: Translate
): string {
  return t(
    rises
      ? '%1 rose from %2 to %3 between step %4 and %5 in %6%7%8.'
      : '%1 fell from %2 to %3 between step %4 and %5 in %6%7%8.',
    name,
    formatNumber(from, 3),
    formatNumber(to, 3),
    formatInteger(first),
    formatInteger(last),
    where,
    others === null ? '' : t(', likewise in %1', others),
    back === null ? '' : t(', and was back at step %1', formatInteger(back))
  );
}

/** Share of the larger end by which a scalar must differ at its ends to be said to fall or rise. */
const SAME = 0.01;

/** The most gaps of one scalar that are named. */
const MOST_GAPS = 2;

/**
 * Say where a scalar went and what happened on the way: what is not finite first, then its ends, where most
 * of a sudden change lies, the largest departure with its step, and steps without a value.
 *
 * @param starts - Steps at which the line begins anew because steps before them are missing.
 */
export function scalarWords(
  name: string,
  steps: ArrayLike<number>,
  values: ArrayLike<number>,
  unit: string,
  t: Translate,
  starts: readonly number[] = []
): string {
  const { bad, start, end, low, high, departure } = courseOf({ steps, values });
  const sentences = bad ? [badWords(name, bad, t)] : [];
  if (start === null || end === null) {
    return t('%1 has no finite value.', name);
  }
  const at = (step: number): string => formatInteger(step);
  const [from, to] = [start.value, end.value];
  if (start.step === end.step) {
    sentences.push(t('%1 is %2 %3 at step %4.', name, formatNumber(from), unit, at(start.step)));
  } else if (Math.abs(to - from) <= SAME * Math.max(Math.abs(from), Math.abs(to))) {
    sentences.push(
      t(
        departure
          ? '%1 began at %2 and ended at %3 %4 between step %5 and %6.'
          : '%1 stayed between %2 and %3 %4 from step %5 to %6.',
        name,
        formatNumber(departure ? from : low, 3),
        formatNumber(departure ? to : high, 3),
        unit,
        at(start.step),
        at(end.step)
      )
    );
  } else {
    const move = departure ? null : largestMove({ layer: 0, steps, values });
    const isSudden = move !== null && move.last - move.first < (end.step - start.step) / 10;
    sentences.push(
      t(
        to < from
          ? '%1 fell from %2 to %3 %4 between step %5 and %6%7.'
          : '%1 rose from %2 to %3 %4 between step %5 and %6%7.',
        name,
        formatNumber(from, 3),
        formatNumber(to, 3),
        unit,
        at(start.step),
        at(end.step),
        isSudden ? t(', most of it between step %1 and %2', at(move.first), at(move.last)) : ''
      )
    );
  }
  if (departure) {
    const { from: left, peak, back } = departure;
    sentences.push(
      t(
        peak.value > left.value
          ? 'On the way it rose from %1 at step %2 to %3 at step %4, and was back at step %5.'
          : 'On the way it fell from %1 at step %2 to %3 at step %4, and was back at step %5.',
        formatNumber(left.value, 3),
        at(left.step),
        formatNumber(peak.value, 3),
        at(peak.step),
        at(back.step)
      )
    );
  }
  return [...sentences, ...gapWords(steps, starts, t)].join(' ').replace(/ {2}/g, ' ');
}

/** Say where values were not finite first; nothing where they all are. */
export function firstBadWords(
  found: readonly { readonly step: number; readonly where: string }[],
  t: Translate
): string[] {
  const [first] = [...found].sort((a, b) => a.step - b.step);
  return first ? [t('Not finite first at step %1 in %2.', formatInteger(first.step), first.where)] : [];
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

function gapWords(steps: ArrayLike<number>, starts: readonly number[], t: Translate): string[] {
  const all = Array.from(steps);
  const gaps = starts.flatMap(start => {
    const before = all[all.indexOf(start) - 1];
    return before === undefined ? [] : [[before, start] as const];
  });
  const named = gaps
    .slice(0, MOST_GAPS)
    .map(([last, next]) =>
      t('It has no value between step %1 and %2.', formatInteger(last), formatInteger(next))
    );
  return gaps.length > MOST_GAPS
    ? [...named, t('More such gaps: %1.', formatInteger(gaps.length - MOST_GAPS))]
    : named;
}

import { formatInteger, formatNumber } from '../../charts';
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
  return {
    layer,
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
  { rises, from, to, first, last }: IMove,
  where: string,
  others: string | null,
  t: Translate
): string {
  return t(
    rises
      ? '%1 rose from %2 to %3 between step %4 and %5 in %6%7.'
      : '%1 fell from %2 to %3 between step %4 and %5 in %6%7.',
    name,
    formatNumber(from, 3),
    formatNumber(to, 3),
    formatInteger(first),
    formatInteger(last),
    where,
    others === null ? '' : t(', likewise in %1', others)
  );
}

/** Say where a scalar went: `loss fell from 5.54 to 1.62 nats/byte between step 1 and 1 240, last 1.62`. */
export function scalarWords(
  name: string,
  steps: ArrayLike<number>,
  values: ArrayLike<number>,
  unit: string,
  t: Translate
): string {
  const indices = Array.from(values, (value, at) => (Number.isFinite(value) ? at : -1)).filter(at => at >= 0);
  const [first, last] = [indices[0], indices[indices.length - 1]];
  if (first === undefined || last === undefined) {
    return t('%1 has no finite value.', name);
  }
  const [from, to] = [values[first] ?? 0, values[last] ?? 0];
  if (first === last) {
    return t('%1 is %2 %3 at step %4.', name, formatNumber(from), unit, formatInteger(steps[first] ?? 0));
  }
  return t(
    to < from
      ? '%1 fell from %2 to %3 %4 between step %5 and %6.'
      : '%1 rose from %2 to %3 %4 between step %5 and %6.',
    name,
    formatNumber(from, 3),
    formatNumber(to, 3),
    unit,
    formatInteger(steps[first] ?? 0),
    formatInteger(steps[last] ?? 0)
  ).replace(/ {2}/g, ' ');
}

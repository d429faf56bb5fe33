import { formatInteger, formatNumber } from '../../charts';
import { layerWords } from './layers';
import type { Translate } from './translate';

/** One layer's statistic over steps; NaN where there was nothing finite. */
export interface ISeries {
  layer: number;
  steps: ArrayLike<number>;
  values: ArrayLike<number>;
}

/** The largest sustained change of a series. */
export interface IMove {
  layer: number;
  rises: boolean;
  from: number;
  to: number;
  first: number;
  last: number;
  size: number;
}

/** Share of a change that must be over at its ends: the tails of a slow approach are left out. */
const TAIL = 0.05;

/** Return the largest rise or fall of a series, cut to where most of it happens; null when fewer than two values are finite. */
function largestMove({ layer, steps, values }: ISeries): IMove | null {
  let [low, high]: [number, number] = [-1, -1];
  let best: { at: number; to: number; size: number } | null = null;
  for (let place = 0; place < values.length; place++) {
    const value = values[place] ?? NaN;
    if (!Number.isFinite(value)) {
      continue;
    }
    low = low < 0 || value < (values[low] ?? 0) ? place : low;
    high = high < 0 || value > (values[high] ?? 0) ? place : high;
    for (const at of [low, high]) {
      const size = Math.abs(value - (values[at] ?? 0));
      if (best === null || size > best.size) {
        best = { at, to: place, size };
      }
    }
  }
  if (best === null || best.at === best.to) {
    return null;
  }
  const [from, to] = [values[best.at] ?? 0, values[best.to] ?? 0];
  const share = (place: number): number => Math.abs((values[place] ?? NaN) - from) / (best?.size || 1);
  let [start, end] = [best.at, best.to];
  for (let place = best.at; place < best.to; place++) {
    start = share(place) <= TAIL ? place : start;
  }
  for (let place = best.to; place > start; place--) {
    end = share(place) >= 1 - TAIL ? place : end;
  }
  return {
    layer,
    rises: to > from,
    from,
    to,
    first: steps[start] ?? 0,
    last: steps[end] ?? 0,
    size: best.size
  };
}

/** What several series did: the strongest move, whether it is too small to be called one, and those like it, itself among them. */
export interface IMoves {
  readonly strongest: IMove;
  readonly isSteady: boolean;
  /** They went the same way at the same time, at least half as far. */
  readonly together: readonly IMove[];
}

/** Find the strongest move of several series; null where none has two finite values. */
export function movesOf(series: readonly ISeries[]): IMoves | null {
  const moves = series.map(largestMove).filter(move => move !== null);
  const [first] = moves;
  if (first === undefined) {
    return null;
  }
  const strongest = moves.reduce((best, move) => (best.size >= move.size ? best : move), first);
  return {
    strongest,
    isSteady: strongest.size < 0.1 * Math.max(Math.abs(strongest.from), Math.abs(strongest.to)),
    together: moves.filter(
      move =>
        move.rises === strongest.rises &&
        move.size >= strongest.size / 2 &&
        move.first <= strongest.last &&
        move.last >= strongest.first
    )
  };
}

/**
 * Say what a statistic did: `rms rose from 0.31 to 0.98 between step 900 and 1 100 in layers 3 and 4`.
 * Layers that moved the same way at the same time are named together; the numbers are those of the one that moved most.
 *
 * @param name The statistic in words.
 */
export function changeWords(name: string, series: readonly ISeries[], t: Translate): string {
  const found = movesOf(series);
  if (found === null) {
    return series.length === 0 ? '' : t('%1 has too few finite values to say how it moved.', name);
  }
  const { strongest, isSteady, together } = found;
  const { from, to, first, last } = strongest;
  if (isSteady) {
    const steps = series.flatMap(each => [each.steps[0], each.steps[each.steps.length - 1]]);
    const known = steps.filter(step => step !== undefined);
    return t(
      '%1 stayed between %2 and %3 from step %4 to %5 in %6.',
      name,
      formatNumber(Math.min(from, to), 3),
      formatNumber(Math.max(from, to), 3),
      formatInteger(Math.min(...known)),
      formatInteger(Math.max(...known)),
      layerWords(series.map(each => each.layer))
    );
  }
  return t(
    strongest.rises
      ? '%1 rose from %2 to %3 between step %4 and %5 in %6.'
      : '%1 fell from %2 to %3 between step %4 and %5 in %6.',
    name,
    formatNumber(from, 3),
    formatNumber(to, 3),
    formatInteger(first),
    formatInteger(last),
    layerWords(together.map(move => move.layer))
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
  const places = Array.from(values, (value, at) => (Number.isFinite(value) ? at : -1)).filter(at => at >= 0);
  const [first, last] = [places[0], places[places.length - 1]];
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

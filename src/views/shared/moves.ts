import { courseOf, type IDeparture } from './course';

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
  /** Where the series ended, if that is neither where it went nor where it came from. */
  end: { step: number; value: number } | null;
  /** The largest departure, where the move is another one. */
  departure: IDeparture | null;
  /** Smallest and largest value of the whole series. */
  low: number;
  high: number;
  /** How far it moved. */
  size: number;
}

/** Share of the larger magnitude that a change must reach to be called one. */
const STEADY = 0.1;

/** Share of a change that must be over at its ends: the tails of a slow approach are left out. */
const TAIL = 0.05;

/** Share of a departure that the rest of a series must move by to be told before it. */
const OWN = 0.25;

/** How many times the smaller of its values a departure must be high to be told beside another move. */
const BESIDE = 0.5;

/** Share of a move by which its end must differ from where it went to be told. */
const ELSEWHERE = 0.2;

/**
 * Return the largest rise or fall of a series, cut to where most of it happens; null when fewer than two
 * values are finite. A departure that returns is left out of it, or is itself the move where the rest hardly
 * moves.
 */
export function largestMove({ layer, steps, values }: ISeries): IMove | null {
  const { start, end, low, high, departure } = courseOf({ steps, values });
  if (start === null || end === null || start.step === end.step) {
    return null;
  }
  const whole = { layer, low, high };
  const rest = { ...whole, ...sustained(steps, values, departure, start.step, end.step), departure };
  if (departure === null) {
    return { ...rest, back: null, end: endOf(rest, end) };
  }
  const { from, peak, back } = departure;
  const size = Math.abs(peak.value - from.value);
  return rest.size >= OWN * size && rest.size >= STEADY * Math.max(Math.abs(rest.from), Math.abs(rest.to))
    ? { ...rest, back: null, end: endOf(rest, end) }
    : {
        ...whole,
        rises: peak.value > from.value,
        first: from.step,
        from: from.value,
        last: peak.step,
        to: peak.value,
        back: back.step,
        end: null,
        departure: null,
        size
      };
}

function endOf(
  { to, last, size }: Pick<IMove, 'last' | 'size' | 'to'>,
  end: IMove['end'] & object
): IMove['end'] {
  return end.step > last && Math.abs(end.value - to) > ELSEWHERE * size ? end : null;
}

/** The largest rise or fall without the steps of a departure; from `start` to `end` where nothing moves. */
function sustained(
  steps: ArrayLike<number>,
  values: ArrayLike<number>,
  departure: IDeparture | null,
  start: number,
  end: number
): Pick<IMove, 'first' | 'from' | 'last' | 'rises' | 'size' | 'to'> {
  const [left, right] = departure ? [departure.from.step, departure.back.step] : [Infinity, -Infinity];
  const valueAt = (index: number): number => {
    const step = steps[index] ?? NaN;
    return step > left && step < right ? NaN : (values[index] ?? NaN);
  };
  let [low, high] = [-1, -1];
  let [from, to, size] = [-1, -1, 0];
  for (let index = 0; index < values.length; index++) {
    const value = valueAt(index);
    if (!Number.isFinite(value)) {
      continue;
    }
    low = low < 0 || value < valueAt(low) ? index : low;
    high = high < 0 || value > valueAt(high) ? index : high;
    const [rise, fall] = [value - valueAt(low), valueAt(high) - value];
    if (Math.max(rise, fall) > size) {
      [from, to, size] = [rise >= fall ? low : high, index, Math.max(rise, fall)];
    }
  }
  if (from < 0) {
    const value = valueAt(low);
    return { rises: false, first: start, from: value, last: end, to: value, size: 0 };
  }
  const [begin, goal] = [valueAt(from), valueAt(to)];
  const share = (index: number): number => Math.abs((valueAt(index) - begin) / (goal - begin));
  let [first, last] = [from, to];
  for (let index = from; index < to; index++) {
    first = share(index) <= TAIL ? index : first;
  }
  for (let index = to; index > first; index--) {
    last = share(index) >= 1 - TAIL ? index : last;
  }
  return {
    rises: goal > begin,
    first: steps[first] ?? NaN,
    from: valueAt(first),
    last: steps[last] ?? NaN,
    to: valueAt(last),
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
  /** The largest departure, for its series, that none of these tells; null where there is none. */
  readonly departed: { readonly layer: number; readonly departure: IDeparture } | null;
  /** Smallest and largest value of all series. */
  readonly low: number;
  readonly high: number;
}

/** Find the strongest move of several series; null where none has two finite values. */
export function movesOf(series: readonly ISeries[]): IMoves | null {
  const moves = series.map(largestMove).filter(move => move !== null);
  const moved = moves.filter(({ from, to, size }) => size >= STEADY * Math.max(Math.abs(from), Math.abs(to)));
  const isSteady = moved.every(({ size }) => size === 0);
  const [strongest] = (isSteady ? [...moves] : [...moved]).sort((a, b) => b.size - a.size);
  if (strongest === undefined) {
    return null;
  }
  const likewise = moved.filter(
    move =>
      move !== strongest &&
      move.rises === strongest.rises &&
      move.size >= strongest.size / 2 &&
      move.first <= strongest.last &&
      move.last >= strongest.first
  );
  return {
    strongest,
    isSteady,
    likewise: isSteady ? [] : likewise,
    departed: isSteady ? null : departedOf(moves, [strongest, ...likewise]),
    low: Math.min(...moves.map(move => move.low)),
    high: Math.max(...moves.map(move => move.high))
  };
}

function departedOf(moves: readonly IMove[], told: readonly IMove[]): IMoves['departed'] {
  const found = moves.flatMap(move => {
    const { layer, departure, first, from, last, to, back } = move;
    const own =
      back === null || told.includes(move)
        ? departure
        : {
            from: { step: first, value: from },
            peak: { step: last, value: to },
            back: { step: back, value: from }
          };
    return own === null ? [] : [{ layer, departure: own, factor: factorOf(own) }];
  });
  return (
    found
      .filter(({ layer, factor }) => factor >= BESIDE || layer === told[0]?.layer)
      .sort((a, b) => b.factor - a.factor)[0] ?? null
  );
}

/** How many times the smaller of its two values a departure is high. */
const factorOf = ({ from, peak }: IDeparture): number =>
  Math.abs(peak.value - from.value) / Math.min(Math.abs(peak.value), Math.abs(from.value));

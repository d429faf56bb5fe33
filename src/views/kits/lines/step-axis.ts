import { indexAt, readScalars } from '../../../aggregate';
import { formatInteger } from '../../../charts';
import type { IRunSource } from '../../../store/source';
import { indexBefore, nearestIndex } from '../../shared/scale';
import type { Translate } from '../../shared/translate';
import type { ILinesRequest } from './line-recipe';

type Align = 'step' | 'time' | 'tokens';
type Place = 'samples' | 'step' | 'time';

/** Hours, minutes and seconds since the start, as a Vega expression for the labels of an axis. */
const ELAPSED = [
  'floor(datum.value / 3600)',
  "format(floor(datum.value / 60) % 60, '02d')",
  "format(floor(datum.value) % 60, '02d')"
].join(" + ':' + ");

/** Seconds that may lie between two ticks: what clocks and calendars divide. Of longer times, whole weeks. */
const ROUND = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800
];
const WEEK = 604800;
const MOST_TICKS = 10;

/** Where its ticks stand, as a Vega expression of the span that is shown. */
const ELAPSED_TICKS = ((): string => {
  const least = `(x1 - x0) / ${MOST_TICKS}`;
  const weeks = `${WEEK} * ceil(${least} / ${WEEK})`;
  const every = ROUND.reduceRight((rest, each) => `${least} <= ${each} ? ${each} : ${rest}`, weeks);
  return `sequence((${every}) * ceil(x0 / (${every})), x1 + 1e-6, ${every})`;
})();

const pad = (part: number): string => String(Math.floor(part)).padStart(2, '0');

/** Seconds as hours, minutes and seconds: `1:02:03`. */
const elapsed = (seconds: number): string =>
  `${formatInteger(Math.floor(seconds / 3600))}:${pad((seconds / 60) % 60)}:${pad(seconds % 60)}`;

export function axisTexts(
  align: Align,
  x: Place,
  { isUtc }: { readonly isUtc: boolean },
  t: Translate
): Pick<ILinesRequest['texts'], 'xLabel' | 'xTicks' | 'xTitle'> {
  if (align === 'time') {
    return { xTitle: t('time since the start'), xLabel: ELAPSED, xTicks: ELAPSED_TICKS };
  }
  if (align === 'tokens') {
    return { xTitle: t('tokens') };
  }
  switch (x) {
    case 'step':
      return { xTitle: t('step') };
    case 'samples':
      return { xTitle: t('samples') };
    case 'time':
      return {
        xTitle: isUtc ? t('time (UTC)') : t('time'),
        xLabel: `${isUtc ? 'utcFormat' : 'timeFormat'}(datum.value, '%H:%M:%S')`
      };
  }
}

/** What tips say of a position on the x axis apart from its step. */
export function placeWords(align: Align, x: Place, t: Translate): (position: number) => string {
  if (align === 'time') {
    return position => t('%1 after the start', elapsed(position));
  }
  if (align === 'tokens') {
    return position => t('%1 tokens', formatInteger(position));
  }
  return position => (x === 'samples' ? t('%1 samples', formatInteger(position)) : '');
}

/** How steps lie on the x axis: as themselves, or as what was consumed or had passed by then. */
export class StepAxis {
  /**
   * @param steps - Ascending.
   * @param xs - Where each lies, ascending; absent where steps are the axis.
   */
  constructor(
    readonly steps: ArrayLike<number>,
    private readonly _xs: ArrayLike<number> | null = null
  ) {}

  xOf(step: number): number {
    return this._xs === null ? step : (this._xs[nearestIndex(this.steps, step)] ?? step);
  }

  /** The step of a point that lies at a position, also of one that is not among the steps here. */
  stepAt(x: number): number {
    return this._xs === null ? x : this.stepNear(x);
  }

  /** The step that lies nearest to a position. */
  stepNear(x: number): number {
    return this.steps[nearestIndex(this._xs ?? this.steps, x)] ?? Math.round(x);
  }

  /** Steps that a span lies between: the last one at or before it, and the first one at or after it. */
  stepsAround([from, to]: readonly [number, number]): [number, number] {
    if (this._xs === null) {
      return [Math.floor(from), Math.ceil(to)];
    }
    const before = Math.max(0, indexBefore(this._xs, from));
    const last = indexBefore(this._xs, to);
    const after = this._xs[last] === to ? last : last + 1;
    const end = this.steps.length - 1;
    return [this.steps[before] ?? from, this.steps[Math.min(end, after)] ?? to];
  }

  /** First and last step that lie within a span; null where none does. */
  stepsIn([from, to]: readonly [number, number]): [number, number] | null {
    const xs = this._xs ?? this.steps;
    const last = indexBefore(xs, to);
    const before = indexBefore(xs, from);
    const first = xs[before] === from ? before : before + 1;
    const [start, end] = [this.steps[first], this.steps[last]];
    return start === undefined || end === undefined || first > last ? null : [start, end];
  }
}

/** Where a step of a run lies on the x axis. */
export type RunClock = (step: number) => number;

/** Names of scalars that count the tokens consumed so far; a group may stand before them. */
const TOKENS =
  /(?:^|[/._ ])(?:(?:consumed|seen|total|num_input|train)_?)?tokens(?:_?(?:seen|consumed|total))?$/i;

/**
 * How the steps of a run lie on an axis by which runs are aligned: as themselves, as tokens consumed, or as
 * seconds since its first scalar, interpolated between scalars. Null where the run has no scalar that says
 * it.
 */
export async function clockOf(
  source: IRunSource,
  align: 'step' | 'time' | 'tokens',
  signal?: AbortSignal
): Promise<RunClock | null> {
  if (align === 'step') {
    return step => step;
  }
  const { lines } = await readScalars(source, { names: null }, signal);
  if (align === 'tokens') {
    const found = lines.filter(({ name, unit }) => TOKENS.test(name) && unit !== '1/s');
    const [counts] = found.sort((a, b) => b.total - a.total);
    return counts ? between(counts.steps, counts.values) : null;
  }
  const times = new Map<number, number>();
  for (const line of lines) {
    line.steps.forEach((step, at) => {
      times.set(step, Math.min(times.get(step) ?? Infinity, line.times[at] ?? Infinity));
    });
  }
  const known = [...times].sort(([a], [b]) => a - b);
  const start = known.reduce((least, [, time]) => Math.min(least, time), Infinity);
  return known.length === 0
    ? null
    : between(
        known.map(([step]) => step),
        known.map(([, time]) => time - start)
      );
}

export function unknownClock(align: 'step' | 'time' | 'tokens', t: Translate): string {
  return align === 'tokens'
    ? t('This run does not say how many tokens were consumed: that is read from a scalar called tokens.')
    : t('This run does not say when its steps were: that is read from its scalars.');
}

/** What lies between known numbers; before the first and after the last one the nearest distance goes on. */
function between(steps: ArrayLike<number>, xs: ArrayLike<number>): RunClock {
  return step => {
    const at = Math.min(Math.max(0, indexAt(steps, step)), Math.max(0, steps.length - 2));
    const [first = NaN, next = first] = [steps[at], steps[at + 1]];
    const [from = NaN, to = from] = [xs[at], xs[at + 1]];
    return first === next ? from : from + ((step - first) / (next - first)) * (to - from);
  };
}

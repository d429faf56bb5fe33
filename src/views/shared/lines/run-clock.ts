import { placeAt, readScalars } from '../../../aggregate';
import type { IRunSource } from '../../../store/source';
import type { Translate } from '../translate';

/** Where a step of a run lies on the x axis. */
export type RunClock = (step: number) => number;

/** Names of scalars that count the tokens consumed so far; a group may stand before them. */
const TOKENS =
  /(?:^|[/._ ])(?:(?:consumed|seen|total|num_input|train)_?)?tokens(?:_?(?:seen|consumed|total))?$/i;

/**
 * Return how the steps of a run lie on an axis by which runs are aligned: as themselves, as tokens consumed, or as seconds since its first scalar. Between
 * scalars what lies between is taken.
 *
 * @returns Null where the run has no scalar that says it.
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

/** Say that a run cannot be put on an axis. */
export function unknownClock(align: 'step' | 'time' | 'tokens', t: Translate): string {
  return align === 'tokens'
    ? t('This run does not say how many tokens were consumed: that is read from a scalar called tokens.')
    : t('This run does not say when its steps were: that is read from its scalars.');
}

/** What lies between known numbers; before the first and after the last one the nearest distance goes on. */
function between(steps: ArrayLike<number>, xs: ArrayLike<number>): RunClock {
  return step => {
    const at = Math.min(Math.max(0, placeAt(steps, step)), Math.max(0, steps.length - 2));
    const [first = NaN, next = first] = [steps[at], steps[at + 1]];
    const [from = NaN, to = from] = [xs[at], xs[at + 1]];
    return first === next ? from : from + ((step - first) / (next - first)) * (to - from);
  };
}

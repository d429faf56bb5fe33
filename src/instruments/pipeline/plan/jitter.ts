import { SeededRandom } from '../../../protocol/seeded-random';
import type { Simulation } from './simulation';

/** What a step takes where its durations vary, in ms: the mean, and what 95 % of the steps lie between. */
export interface ISpread {
  readonly mean: number;
  readonly low: number;
  readonly high: number;
  readonly typical: ITypical;
}

/** When things happen on average over steps that vary, ms from a step's begin. */
export interface ITypical {
  /** Of each operation. */
  readonly begin: Float64Array;
  readonly end: Float64Array;
  /** Of each stage, with its optimizer. */
  readonly done: Float64Array;
  /** The longest that a stage is busy. */
  readonly periodMs: number;
}

/** Operations that are simulated between two breaths: about 10 ms. */
export const SLICE = 200_000;

const ROOT = Math.sqrt(3);

/**
 * Run the same plan many times with durations that vary independently: a duration times 1 + jitter times a
 * number of mean 0 and variance 1, at least 0.
 *
 * The number is a sum of four uniform ones, nearly normal and never beyond 3.5, so that durations stay
 * unbiased up to a jitter of 0.28; messages take what they take. 50 to 400 steps, fewer of large plans.
 * Yields between slices; the same seed gives the same steps everywhere. The simulation is left as it was, not
 * run.
 */
export function* spreadOf(simulation: Simulation, seed: number): Generator<void, ISpread> {
  const { durations, optimizer, table, times } = simulation;
  const random = new SeededRandom(seed);
  const mean = durations.slice();
  const still = optimizer.slice();
  const count = Math.max(50, Math.min(400, Math.floor(2e6 / table.count)));
  const steps = new Float64Array(count);
  const scale = times.jitter * ROOT;
  const vary = (from: Float64Array, to: Float64Array): void => {
    for (let at = 0; at < from.length; at += 1) {
      const factor = 1 + scale * (random.centred() + random.centred() + random.centred() + random.centred());
      to[at] = factor > 0 ? from[at]! * factor : 0;
    }
  };
  const [begin, end] = [new Float64Array(table.count), new Float64Array(table.count)];
  const done = new Float64Array(simulation.free.length);
  let [worked, period] = [0, 0];
  const add = (sum: Float64Array, of: Float64Array): void => {
    for (let at = 0; at < sum.length; at += 1) {
      sum[at]! += of[at]! / count;
    }
  };
  for (let step = 0; step < count; step += 1) {
    vary(mean, durations);
    vary(still, optimizer);
    steps[step] = simulation.run();
    add(begin, simulation.begin);
    add(end, simulation.end);
    add(done, simulation.free);
    period += simulation.periodMs / count;
    worked += 4 * table.count;
    if (worked >= SLICE) {
      worked = 0;
      yield;
    }
  }
  durations.set(mean);
  optimizer.set(still);
  const sorted = steps.slice().sort();
  return {
    mean: steps.reduce((sum, each) => sum + each, 0) / count,
    low: quantile(sorted, 0.025),
    high: quantile(sorted, 0.975),
    typical: { begin, end, done, periodMs: period }
  };
}

/** A quantile of sorted numbers, between two of them in proportion. */
export function quantile(sorted: ArrayLike<number>, share: number): number {
  const index = share * (sorted.length - 1);
  const below = Math.floor(index);
  const first = sorted[below] ?? NaN;
  return first + (index - below) * ((sorted[below + 1] ?? first) - first);
}

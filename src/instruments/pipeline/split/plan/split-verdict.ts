import { SeededRandom } from '../../../../protocol/seeded-random';
import { quantile } from '../../plan/jitter';
import type { ICostedLayout } from './best-layouts';
import type { ISplitPlanned, ISplitVerdict } from './split-planned';
import type { IFullKind, IFullSplitRequest } from './split-request';
import { SplitSimulation } from './split-simulation';

const SAMPLES = 200;
const ROOT = Math.sqrt(3);

/** The best layout of a camp, and the few that may be the best with slightly other times. */
export interface ICamp {
  readonly best: ISplitPlanned | null;
  readonly layouts: readonly ICostedLayout[];
}

/**
 * Say whether a split is worth it: by how much its step is shorter, and whether that may be chance.
 *
 * Each time of each kind of device, the latency and the bandwidth are drawn anew 200 times; each draw takes the best layout of each camp for it. The same seed draws the same
 * numbers everywhere. Yields after each draw.
 */
export function* splitVerdict(
  split: ICamp,
  other: ICamp,
  request: IFullSplitRequest
): Generator<void, ISplitVerdict> {
  const none = { percent: NaN, lowPercent: NaN, highPercent: NaN, regretPercent: NaN };
  if (split.best === null || other.best === null) {
    return { isWorthIt: split.best !== null, split: split.best, other: other.best, ...none };
  }
  const random = new SeededRandom(request.seed);
  const percents: number[] = [];
  const losses = { split: 0, other: 0 };
  for (let sample = 0; sample < SAMPLES; sample += 1) {
    const simulation = new SplitSimulation(drawn(request, random));
    const costs = (camp: ICamp): number[] => camp.layouts.map(({ layout }) => simulation.cost(layout).stepMs);
    const [splits, others] = [costs(split), costs(other)];
    const [bestSplit, bestOther] = [Math.min(...splits), Math.min(...others)];
    percents.push(percentOf(bestSplit, bestOther));
    const least = Math.min(bestSplit, bestOther);
    losses.split += percentOf(splits[0]!, least) / SAMPLES;
    losses.other += percentOf(others[0]!, least) / SAMPLES;
    yield;
  }
  percents.sort((a, b) => a - b);
  const percent = percentOf(split.best.stepMs, other.best.stepMs);
  const highPercent = quantile(percents, 0.975);
  const isWorthIt = percent < 0 && highPercent < 0;
  return {
    isWorthIt,
    split: split.best,
    other: other.best,
    percent,
    lowPercent: quantile(percents, 0.025),
    highPercent,
    regretPercent: isWorthIt ? losses.split : losses.other
  };
}

/** By how much a step is longer than another, %. */
function percentOf(step: number, other: number): number {
  return other > 0 ? ((step - other) / other) * 100 : 0;
}

/** The request with times as they may be. */
function drawn(request: IFullSplitRequest, random: SeededRandom): IFullSplitRequest {
  /** Above 0, and as often twice as half as much: nearly log-normal, without a function whose last digit browsers may choose. */
  const vary = (value: number): number => {
    const sum = random.centred() + random.centred() + random.centred() + random.centred();
    const change = request.uncertainty * ROOT * sum;
    return value * (change < 0 ? 1 / (1 - change) : 1 + change);
  };
  return {
    ...request,
    devices: request.devices.map((kind): IFullKind => ({
      ...kind,
      forward: vary(kind.forward),
      recompute: vary(kind.recompute),
      backward: vary(kind.backward),
      optimizer: vary(kind.optimizer)
    })),
    latency: vary(request.latency),
    bandwidth: vary(request.bandwidth)
  };
}

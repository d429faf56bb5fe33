import { translatedLater } from '../../../../protocol/texts';
import { SeededRandom } from '../../../../protocol/seeded-random';
import { quantile } from '../../plan/simulation';
import { byteWords } from '../../plan/memory';
import { inSlices, type IPlanOptions } from '../../plan/plan-all';
import { PlanError } from '../../plan/plan-shape';
import type { SplitFamily } from '../protocol/split.generated';
import type { ICostedLayout, BestLayouts, ISearchLimits } from './split-search';
import { searchFamily, USUAL_LIMITS } from './split-search';
import { SPLIT_FAMILIES, type IFullKind, type IFullSplitRequest, fullSplitRequest } from './split-request';
import type { ISplitPlanned, ISplitVerdict, ISplitPlan, SplitOutcome } from './planned-split';
import { plannedSplit } from './planned-split';
import { SplitSimulation } from './split-simulation';

const SAMPLES = 200;
const ROOT = Math.sqrt(3);

/** The best layout of a camp, and the few that may be the best with slightly other times. */
interface ICamp {
  readonly best: ISplitPlanned | null;
  readonly layouts: readonly ICostedLayout[];
}

/**
 * Say whether a split is worth it: by how much its step is shorter, and whether that may be chance.
 *
 * Each time of each kind of device, the latency and the bandwidth are drawn anew 200 times; each draw takes
 * the best layout of each camp for it. The same seed draws the same numbers everywhere. Yields after each
 * draw.
 */
function* splitVerdict(
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

const percentOf = (step: number, other: number): number => (other > 0 ? ((step - other) / other) * 100 : 0);

function drawn(request: IFullSplitRequest, random: SeededRandom): IFullSplitRequest {
  /** Above 0, twice as often as half: nearly log-normal, without functions that differ between browsers. */
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

const TITLES = translatedLater<Record<SplitFamily, string>>({
  ordinary: 'Ordinary',
  recompute: 'Ordinary with recomputation',
  pipeline: 'Pipeline',
  pipeline_recompute: 'Pipeline with recomputation',
  split: 'Split',
  megafbd: 'MegaFBD’s split'
});

export const familyTitle = (family: SplitFamily): string => TITLES[family];

/**
 * Find the best layout of each family, and say whether a split is worth it.
 *
 * The answer depends on the request alone, not on the machine: the search counts passes, not time. A family
 * that does not fit comes back with the reason.
 * @param request - A `SplitRequest`, checked here.
 * @throws PlanError `request` or `fit` where it is none; the signal's reason.
 */
export async function planSplit(
  request: unknown,
  options: IPlanOptions = {},
  limits: ISearchLimits = USUAL_LIMITS
): Promise<ISplitPlan> {
  const full = fullSplitRequest(request);
  const simulation = new SplitSimulation(full);
  const layouts: SplitOutcome[] = full.layout === undefined ? [] : [plannedSplit(simulation, full.layout)];
  const camps: Record<'other' | 'split', ICamp> = {
    other: { best: null, layouts: [] },
    split: { best: null, layouts: [] }
  };
  const total = SPLIT_FAMILIES.length + 1;
  for (const [at, family] of SPLIT_FAMILIES.entries()) {
    options.progress?.(at, total, familyTitle(family));
    const found = await inSlices(searchFamily(simulation, family, limits), options);
    // What was costed from fewer micro-batches is run in full.
    const runs = found.found
      .map(({ layout }) => plannedSplit(simulation, layout))
      .filter(each => each.overMemoryBytes === 0)
      .sort((a, b) => a.stepMs - b.stepMs);
    const best = runs[0];
    layouts.push(best ?? refusal(family, found));
    if (best !== undefined && family !== 'megafbd') {
      const camp = family === 'split' ? 'split' : 'other';
      const known = [...camps[camp].layouts, ...runs].sort((a, b) => a.stepMs - b.stepMs);
      camps[camp] = { best: shortest([camps[camp].best ?? best, best]), layouts: known.slice(0, 5) };
    }
  }
  options.progress?.(total - 1, total, 'Verdict');
  const verdict = await inSlices(splitVerdict(camps.split, camps.other, full), options);
  options.progress?.(total, total, '');
  const fitting = layouts.flatMap(each => ('refused' in each || each.overMemoryBytes > 0 ? [] : [each]));
  return { layouts, best: shortest(fitting), verdict };
}

/** The first of the shortest. */
function shortest(all: readonly ISplitPlanned[]): ISplitPlanned | null {
  return all.reduce<ISplitPlanned | null>(
    (best, each) => (best === null || each.stepMs < best.stepMs ? each : best),
    null
  );
}

function refusal(family: SplitFamily, { tried, leastOver }: BestLayouts): SplitOutcome {
  const refused =
    tried === 0
      ? new PlanError(
          'fit',
          `${familyTitle(family)}: there must be devices for one replica, and layers for its stages, got too few. Add devices or layers.`
        )
      : new PlanError(
          'memory',
          `${familyTitle(family)}: no layout of ${tried} fits in memory; the best of them needs ${byteWords(leastOver)} more on a device. Try more devices, or another family.`
        );
  return { family, refused: { code: refused.code, message: refused.message } };
}

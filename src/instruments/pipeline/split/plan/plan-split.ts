import type { SplitFamily } from '../protocol/split.generated';
import { byteWords } from '../../plan/byte-words';
import { inSlices, type IPlanOptions } from '../../plan/plan-all';
import { PlanError } from '../../plan/plan-error';
import type { BestLayouts } from './best-layouts';
import { SPLIT_FAMILIES } from './layout-shape';
import { plannedSplit } from './planned-split';
import type { ISplitPlan, ISplitPlanned, SplitOutcome } from './split-planned';
import { fullSplitRequest } from './split-request';
import { searchFamily, USUAL_LIMITS, type ISearchLimits } from './split-search';
import { SplitSimulation } from './split-simulation';
import { splitVerdict, type ICamp } from './split-verdict';

const TITLES: Record<SplitFamily, string> = {
  ordinary: 'Ordinary',
  recompute: 'Ordinary with recomputation',
  pipeline: 'Pipeline',
  pipeline_recompute: 'Pipeline with recomputation',
  split: 'Split',
  megafbd: 'MegaFBD’s split'
};

/** A family as people read it. */
export function familyTitle(family: SplitFamily): string {
  return TITLES[family];
}

/**
 * Find the best layout of each family, and say whether a split is worth it.
 *
 * The answer depends on the request alone, not on the machine: the search counts passes, not time. A family that does not fit comes back with the reason.
 *
 * @param request - A `SplitRequest`, checked here.
 * @param limits - How long it is searched.
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

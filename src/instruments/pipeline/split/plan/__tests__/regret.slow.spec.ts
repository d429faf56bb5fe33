/** @jest-environment ./jest.environment.node.js */
import { devicesOf, SPLIT_FAMILIES, fullSplitRequest } from '../split-request';
import { searchFamily, USUAL_LIMITS, type ISearchLimits } from '../split-search';
import { SplitSimulation } from '../split-simulation';
import { bruteForce } from './brute-force';
import { randomCluster } from './random-clusters';

// `make fuzz` tries forty times as many.
const CLUSTERS = Number(process.env['MEGALENS_FUZZ_CASES'] ?? 1000) / 20;
const clusters = Array.from({ length: CLUSTERS }, (_, seed) => {
  const request = fullSplitRequest(randomCluster(seed + 1));
  return { request, shortest: bruteForce(request) };
});

function searched(
  simulation: SplitSimulation,
  family: (typeof SPLIT_FAMILIES)[number],
  limits: ISearchLimits
) {
  const work = searchFamily(simulation, family, limits);
  for (;;) {
    const step = work.next();
    if (step.done === true) {
      return step.value;
    }
  }
}

/** By how much the found steps are longer than the shortest there are, of each cluster and family; all found layouts fit. */
function regrets(limits: ISearchLimits): number[] {
  const found: number[] = [];
  for (const { request, shortest } of clusters) {
    const simulation = new SplitSimulation(request);
    for (const family of SPLIT_FAMILIES) {
      const { found: layouts, leastMs } = searched(simulation, family, limits);
      for (const { layout, stepMs } of layouts) {
        simulation.run(layout);
        const layers = layout.stages.reduce((sum, stage) => sum + stage.layers, 0);
        expect([simulation.stepMs, simulation.overBytes, layers]).toEqual([stepMs, 0, request.layers.length]);
        expect(devicesOf(layout, request.devices)).not.toBeNull();
        expect(request.micro_batches % layout.data).toBe(0);
      }
      expect(layouts.length > 0).toBe(shortest.has(family));
      found.push(shortest.has(family) ? leastMs / shortest.get(family)! - 1 : 0);
    }
  }
  return found;
}

describe(`the best layout of each family on ${CLUSTERS} small clusters`, () => {
  it('is the best that there is', () => {
    expect(Math.max(...regrets(USUAL_LIMITS))).toBeLessThan(1e-9);
  });

  it('is at most 3 % longer, and hardly ever longer at all, where the search must do without trying each', () => {
    const found = regrets({ ...USUAL_LIMITS, every: 0 });
    expect(Math.max(...found)).toBeLessThan(0.03);
    expect(found.reduce((sum, each) => sum + each, 0) / found.length).toBeLessThan(0.0001);
  });
});

import type { SplitFamily, SplitLayout } from '../../protocol/split.generated';
import type { IFullSplitRequest } from '../split-request';
import { SplitSimulation } from '../split-simulation';

const FAMILIES: readonly SplitFamily[] = [
  'ordinary',
  'recompute',
  'pipeline',
  'pipeline_recompute',
  'split',
  'megafbd'
];

/** Of each family the shortest step that fits in memory, by trying all there is; no family where none fits. */
export function bruteForce(request: IFullSplitRequest): Map<SplitFamily, number> {
  const { devices, layers, micro_batches, tensors } = request;
  const simulation = new SplitSimulation(request);
  const best = new Map<SplitFamily, number>();
  const total = devices.reduce((sum, { count }) => sum + count, 0);
  const cuts = compositions(layers.length);
  const sequences = new Map<number, number[][]>();
  const kindsOf = (length: number): number[][] => {
    const known = sequences.get(length) ?? [];
    if (known.length === 0) {
      for (let code = 0; code < devices.length ** length; code += 1) {
        known.push(
          Array.from({ length }, (_, at) => Math.floor(code / devices.length ** at) % devices.length)
        );
      }
      sequences.set(length, known);
    }
    return known;
  };
  for (const family of FAMILIES) {
    const isApart = family === 'split' || family === 'megafbd';
    for (let data = 1; data <= total; data += 1) {
      for (const tensor of micro_batches % data === 0 ? tensors : []) {
        const degrees =
          family === 'split'
            ? tensors.filter(degree => tensor % degree === 0)
            : [family === 'megafbd' ? 1 : tensor];
        for (const degree of degrees) {
          for (let stages = 1; stages <= Math.min(layers.length, total); stages += 1) {
            const isWhole = family === 'ordinary' || family === 'recompute';
            if (isApart ? false : isWhole !== (stages === 1)) {
              continue;
            }
            const forwards = !isApart
              ? [0]
              : family === 'split' && stages > 1
                ? [stages - 1, stages]
                : [stages];
            for (const forward of forwards) {
              const extra = family === 'megafbd' ? 1 : 0;
              if (data * (stages * tensor + forward * degree) + extra > total) {
                continue;
              }
              for (const kinds of kindsOf(stages + forward)) {
                const used = devices.map(() => 0);
                kinds.forEach((kind, at) => (used[kind]! += data * (at < stages ? tensor : degree)));
                if (used.some((count, kind) => count > devices[kind]!.count)) {
                  continue;
                }
                for (const cut of cuts.get(stages)!) {
                  const layout: SplitLayout = {
                    family,
                    data,
                    tensor,
                    ...(family === 'split' ? { forward_tensor: degree } : {}),
                    stages: cut.map((count, stage) => ({
                      device: kinds[stage]!,
                      layers: count,
                      ...(isApart ? { forward_device: kinds[stages + stage] ?? null } : {})
                    }))
                  };
                  simulation.run(layout);
                  if (simulation.overBytes === 0 && simulation.stepMs < (best.get(family) ?? Infinity)) {
                    best.set(family, simulation.stepMs);
                  }
                }
              }
            }
          }
        }
      }
    }
  }
  return best;
}

/** By number of stages: all ways to cut so many layers. */
function compositions(layers: number): Map<number, number[][]> {
  const ways = new Map<number, number[][]>();
  for (let mask = 0; mask < 1 << (layers - 1); mask += 1) {
    const cut = [1];
    for (let at = 0; at < layers - 1; at += 1) {
      if ((mask >> at) & 1) {
        cut.push(1);
      } else {
        cut[cut.length - 1]! += 1;
      }
    }
    ways.set(cut.length, [...(ways.get(cut.length) ?? []), cut]);
  }
  return ways;
}

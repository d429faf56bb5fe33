import type { Hello, RankState, SiteInfo } from '../../../protocol/messages.generated';
import { HELLO } from './controlled-run';

const SITES: SiteInfo[] = [
  {
    name: 'calculation',
    title: 'MLP output',
    layers: [1, 2, 3, 4],
    kinds: [
      {
        name: 'noise1',
        title: 'Additive Gaussian noise',
        description: 'Add Gaussian noise.',
        schema: {
          type: 'object',
          required: [],
          properties: { coefficient: { type: 'number', title: 'Coefficient', minimum: 0, default: 0.01 } }
        }
      },
      {
        name: 'bit_flip',
        title: 'Bit flips',
        description: 'Flip one bit of some elements.',
        schema: {
          type: 'object',
          required: [],
          properties: { bit: { title: 'Bit', enum: ['any', 0, 1], default: 'any' } }
        }
      }
    ]
  },
  {
    name: 'weight',
    title: 'Weights',
    layers: [],
    kinds: [],
    reason: 'This model names no linear modules whose weights could be perturbed.'
  }
];

/** Hello of a job of eight processes whose script allows everything. */
export const JOB: Hello = {
  ...HELLO,
  controls: ['pause', 'watched', 'perturb'],
  sites: SITES,
  config: { flags: { MLP1_mat_mul: { compressor: { name: 'Tile', params: { tiles: 96 } } } } },
  layout: {
    world_size: 8,
    tp: 2,
    pp: 2,
    dp: 2,
    ranks: [0, 1, 2, 3, 4, 5, 6, 7].map(rank => ({
      rank,
      tp: rank % 2,
      dp: (rank >> 1) % 2,
      pp: rank >> 2,
      host: `node-${1 + (rank >> 2)}`
    }))
  }
};

/** States of all eight, some of them in trouble. */
export function rankStates(trouble: Readonly<Record<number, Partial<RankState>>> = {}): RankState[] {
  return [0, 1, 2, 3, 4, 5, 6, 7].map(rank => ({
    rank,
    name: `rank ${rank} (tp ${rank % 2}, pp ${rank >> 2}) on node-${1 + (rank >> 2)}`,
    state: 'training',
    step: 1240,
    seconds: 0.1,
    ...trouble[rank]
  }));
}

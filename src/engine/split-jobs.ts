import { deletedRanks, rankMap } from '../plan/split/rank-map';
import type { IJobResult } from './jobs';

/** Say which process does what, for a `RankMapRequest`; `protocol/README.md` says what the answer's members are. */
export async function mapRanks(args: unknown): Promise<IJobResult> {
  const map = rankMap(args);
  const { layout, tensor, forwardTensor, stages, replicas, lastForward, ranks, processes } = map;
  return Promise.resolve({
    json: {
      layout,
      tensor,
      forward_tensor: forwardTensor,
      stages,
      replicas,
      last_forward: lastForward,
      ranks,
      processes,
      ...(layout === 'megafbd' ? { deleted_ranks: deletedRanks(map) } : {})
    }
  });
}

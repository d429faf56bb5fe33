import type { Hello } from '../../protocol/messages.generated';
import type { ITensorShape } from '../../store/source';
import { listWords } from './layers';
import type { Translate } from './translate';

/** Name a rank with its place in the parallel layout: `rank 2 (dp 1)`. */
export function rankName(rank: number, hello: Hello | null, t: Translate): string {
  const layout = hello?.layout;
  const place = layout?.ranks?.find(each => each.rank === rank);
  const where = (['tp', 'pp', 'dp'] as const)
    .filter(axis => place && (layout?.[axis] ?? 1) > 1)
    .map(axis => `${axis} ${place?.[axis]}`);
  return where.length > 0 ? t('rank %1 (%2)', rank, where.join(', ')) : t('rank %1', rank);
}

/**
 * Say whose rows are drawn where a run has several ranks.
 *
 * @param drawn - Ranks of the rows, ascending.
 */
export function rankWords(
  drawn: readonly number[],
  shape: ITensorShape,
  rank: number | null,
  hello: Hello | null,
  t: Translate
): string[] {
  const [first = 0] = drawn;
  if ((shape.ranks ?? []).length < 2 && first === 0) {
    return [];
  }
  const replicas = (hello?.layout?.dp ?? 1) > 1;
  if (rank !== null || drawn.length === 1) {
    const name = rankName(first, hello, t);
    return [replicas ? t('Replica of %1.', name) : t('From %1.', name)];
  }
  return [
    replicas
      ? t('From ranks %1: of each layer the replica of the lowest rank.', listWords(drawn))
      : t('From ranks %1.', listWords(drawn))
  ];
}

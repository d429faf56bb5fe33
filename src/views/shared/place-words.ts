import type { Hello, Pass } from '../../protocol/messages.generated';
import { own } from '../../protocol/own';
import type { ITensorRow, ITensorShape } from '../../store/source';
import { listWords } from './layers';
import type { Control } from './control';
import { selectControl } from './select-control';
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

/** Say whose rows are drawn where a run has several ranks. */
export function rankWords(
  rows: readonly ITensorRow[],
  shape: ITensorShape,
  rank: number | null,
  hello: Hello | null,
  t: Translate
): string[] {
  const drawn = [...new Set(rows.map(row => row.rank))].sort((a, b) => a - b);
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

/** The picker of a rank; nothing while there is one only. */
export function rankControl(
  shape: ITensorShape,
  rank: number | null,
  hello: Hello | null,
  change: (rank: number | null) => void,
  t: Translate
): Control[] {
  const seen = shape.ranks ?? [];
  const offered = rank === null || seen.includes(rank) ? seen : [...seen, rank];
  return offered.length < 2 && rank === null
    ? []
    : [
        selectControl(
          'rank',
          t('Rank'),
          rank === null ? '' : String(rank),
          [
            { value: '', text: t('lowest of each layer') },
            ...offered.map(each => ({ value: String(each), text: rankName(each, hello, t) }))
          ],
          value => change(value === '' ? null : Number(value))
        )
      ];
}

/** The picker of values or gradients; nothing while only forward passes are traced. */
export function passControl(
  shape: ITensorShape,
  flag: string,
  pass: Pass,
  hello: Hello | null,
  change: (pass: Pass) => void,
  t: Translate
): Control[] {
  const there = [...(shape.passes ?? []), ...(own(hello?.config.flags, flag)?.passes ?? []), pass];
  return there.includes('backward')
    ? [
        selectControl(
          'pass',
          t('Pass'),
          pass,
          { forward: t('forward, values'), backward: t('backward, gradients') },
          change
        )
      ]
    : [];
}

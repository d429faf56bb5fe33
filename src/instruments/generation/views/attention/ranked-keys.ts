import { joinAttention } from '../../store/attention-rows';
import type { ITable } from '../../../../views/shared/table';
import { numberColumn } from '../../../../views/shared/table';
import type { Translate } from '../../../../views/shared/translate';
import { positionsOf } from './attention-maps';
import { percent, spanName, type IAttentionText } from './attention-text';

/** A key of a query, or a block of keys, and the largest probability within it. */
export interface IRankedKey {
  readonly first: number;
  readonly last: number;
  readonly share: number;
}

/** What a query looks at, the largest probability first. */
export interface IRankedQuery {
  /** Queries that share these numbers: one, unless the pass was kept in blocks. */
  readonly queries: readonly [number, number];
  readonly keys: readonly IRankedKey[];
  /** Whether a number is the largest of several probabilities. */
  readonly isBlock: boolean;
}

/** Return what a query looks at, as finely as it was kept; null where there is no row of it. */
export function rankedKeys(
  text: IAttentionText,
  layer: number,
  head: number,
  query: number
): IRankedQuery | null {
  const { read, sequence } = text;
  const map = joinAttention(read, layer, { sequence, heads: [head], queries: [query, query] });
  if (map === null) {
    return null;
  }
  const keys: IRankedKey[] = [];
  for (let cell = 0; cell < map.keys.count; cell += 1) {
    const [first, last] = positionsOf(map.keys, cell, read.count);
    if (map.missing[cell] !== 1) {
      keys.push({ first, last, share: map.row.values[cell] ?? NaN });
    }
  }
  // What is not finite comes first: it is what is looked for.
  const rank = ({ share }: IRankedKey): number => (Number.isFinite(share) ? share : Infinity);
  return {
    queries: positionsOf(map.queries, 0, read.count),
    keys: keys.sort((a, b) => (rank(a) === rank(b) ? a.first - b.first : rank(b) - rank(a))),
    isBlock: map.keys.side > 1 || map.queries.side > 1
  };
}

/** The keys of a query as a table. */
export function keysTable(
  text: IAttentionText,
  { queries, keys, isBlock }: IRankedQuery,
  t: Translate
): ITable {
  const of = spanName(text, ...queries);
  const at = (row: number): IRankedKey => keys[row] ?? { first: 0, last: 0, share: NaN };
  return {
    rows: keys.length,
    columns: [
      {
        title: t('Key of query %1', of),
        text: row => spanName(text, at(row).first, at(row).last),
        sortBy: row => at(row).first
      },
      numberColumn(isBlock ? t('Largest probability') : t('Probability'), row => at(row).share, percent)
    ]
  };
}

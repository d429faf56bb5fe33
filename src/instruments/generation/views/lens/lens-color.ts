import type { LensOptions } from '../../../../protocol/views.generated';
import type { Lens } from '../../store/lens';
import type { Translate } from '../../../../views/shared/translate';

/** What colours a cell. */
export type LensColor = Required<LensOptions>['color'];

/** What colours in words, with its unit. */
export function colorWords(color: LensColor, t: Translate): string {
  const words: Readonly<Record<LensColor, string>> = {
    probability: t('probability'),
    final: t('probability of the final token'),
    rank: t('rank of the final token'),
    entropy: t('entropy (nats)')
  };
  return words[color];
}

/** The number that colours the cell of a row; null where there is none, because it was not read or no token came after it. */
export function colorValue(lens: Lens, row: number, color: LensColor): number | null {
  if (row < 0) {
    return null;
  }
  const hasToken = (lens.rank[row] ?? -1) >= 0;
  switch (color) {
    case 'probability':
      return lens.bestOf(row);
    case 'final':
      return hasToken ? (lens.probability[row] ?? NaN) : null;
    case 'rank':
      return hasToken ? (lens.rank[row] ?? NaN) : null;
    case 'entropy':
      return lens.entropy[row] ?? NaN;
  }
}

import { ColorScale, COLORS, colorTable } from '../../charts';
import type { LensOptions } from '../../protocol/views.generated';
import type { Lens } from '../../store/lens';
import { extentOf } from '../shared/scale';
import type { Translate } from '../shared/translate';

/** What colours a cell. */
export type LensColor = Required<LensOptions>['color'];

/** Ranks above this are spread by their magnitude. */
const MOST_LINEAR = 20;
/** Bright is sure in every picture: of ranks and entropies the low ones are. */
const REVERSED = colorTable([...COLORS.sequential].reverse());

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

/** The scale of the colours. Probabilities go from 0 to 1 whatever comes. */
export function colorScale(values: ArrayLike<number>, color: LensColor): ColorScale {
  const extent = extentOf([values]);
  if (color === 'probability' || color === 'final') {
    return new ColorScale(extent, 'linear', NaN, { range: [0, 1] });
  }
  const range = [0, extent?.[1] ?? 1] as const;
  const isWide = color === 'rank' && range[1] > MOST_LINEAR;
  return new ColorScale(extent, isWide ? 'log' : 'linear', 1, { range, table: REVERSED });
}

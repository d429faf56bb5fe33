import { ColorScale, COLORS, colorTable } from '../../../../charts';
import type { LensOptions, TokensOptions } from '../../../../protocol/views.generated';
import { extentOf } from '../../../../views/shared/scale';

/** Ranks above this are spread by their magnitude. */
const MOST_LINEAR = 20;
/** Bright is sure in every picture: of surprises, entropies and ranks the low ones are. */
const REVERSED = colorTable([...COLORS.sequential].reverse());

/** The scale of numbers that say how sure a model is. Probabilities go from 0 to 1 whatever comes. */
export function surenessScale(
  values: ArrayLike<number>,
  kind: Required<LensOptions | TokensOptions>['color']
): ColorScale {
  const extent = extentOf([values]);
  if (kind === 'probability' || kind === 'final') {
    return new ColorScale(extent, 'linear', NaN, { range: [0, 1] });
  }
  const range = [0, extent?.[1] ?? 1] as const;
  const isWide = kind === 'rank' && range[1] > MOST_LINEAR;
  return new ColorScale(extent, isWide ? 'log' : 'linear', 1, { range, table: REVERSED });
}

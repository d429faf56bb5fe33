import type { ColorScale } from './color-scale';
import { formatNumber } from './format';
import { MOST_SIGMA, SIGMA_ENDS } from './sigma-scale';
import { COLORS } from './colors.generated';

/** What the colour strip of a heatmap needs: params and the rows of the dataset `legend`. */
export interface IColorLegend {
  readonly params: { legendLow: number; legendAt: number[]; legendText: string[] };
  readonly rows: { from: number; to: number; color: string }[];
}

/** Words on the strip, so that they can be translated. */
export interface ILegendWords {
  lowest: string;
  highest: string;
  notFinite: string;
}

const SLICES = 128;

/** Return round places for labels on a linear scale: about five. */
function stops(scale: ColorScale): number[] {
  const [lo, hi] = scale.domain;
  if (scale.empty) {
    return [];
  }
  if (lo === hi) {
    return [0.5];
  }
  if (scale.stepped) {
    return SIGMA_ENDS.map(end => (1 + end / MOST_SIGMA) / 2);
  }
  if (scale.transform === 'log') {
    return scale.signed ? [0, 0.25, 0.5, 0.75, 1] : [0, 1 / 3, 2 / 3, 1];
  }
  return [0, 0.25, 0.5, 0.75, 1];
}

/** Name the end of a band: ` (−2σ)`. */
function marked(scale: ColorScale, place: number): string {
  const end = SIGMA_ENDS.find(each => (1 + each / MOST_SIGMA) / 2 === place);
  return scale.stepped && end !== undefined ? ` (${end < 0 ? '\u2212' : '+'}${Math.abs(end)}σ)` : '';
}

/**
 * Return the colour strip of a scale.
 *
 * @param scale The shared scale.
 * @param nonFinite Whether the picture holds non-finite cells, so that their colour is explained.
 * @param words Set when each picture has a scale of its own: the ends are then named, not numbered.
 */
export function legend(
  scale: ColorScale,
  nonFinite: boolean,
  words: ILegendWords,
  own = false
): IColorLegend {
  const at = own ? [0, 1] : stops(scale);
  const text = own
    ? [words.lowest, words.highest]
    : at.map(place => formatNumber(scale.valueAt(place), 3) + marked(scale, place));
  const rows = Array.from({ length: SLICES }, (_, slice) => ({
    from: slice / SLICES,
    // Half a row further, so that no seam shows between two rows.
    to: Math.min(1, (slice + 1.5) / SLICES),
    color: scale.colorAt((slice + 0.5) / SLICES)
  }));
  if (nonFinite) {
    rows.push({ from: -0.14, to: -0.06, color: COLORS.nonfinite[0] });
    at.unshift(-0.1);
    text.unshift(words.notFinite);
  }
  return { params: { legendLow: nonFinite ? -0.14 : 0, legendAt: at, legendText: text }, rows };
}

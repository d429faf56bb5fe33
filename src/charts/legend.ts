import { colorTable, ColorScale, type Extent, type IColorLook, type Transform } from './color-scale';
import { formatNumber } from './format';
import COLORS from '#protocol/charts/colors.json';

/**
 * Ends of the bands, in standard deviations from the mean; the middle one is twice as wide as its neighbours.
 */
const SIGMA_ENDS = [-3, -2, -1, 1, 2, 3] as const;

/** Standard deviations from the mean at the ends of the strip. */
const MOST_SIGMA = 4;
const BANDS = SIGMA_ENDS.length + 1;

/** A colour for each band, in the first entries of a table. */
function bandTable(stops: readonly string[]): Uint8Array {
  const all = colorTable(stops);
  const last = all.length / 3 - 1;
  return Uint8Array.from({ length: all.length }, (_, at) => {
    const band = Math.min(Math.floor(at / 3), BANDS - 1);
    return all[Math.round((band / (BANDS - 1)) * last) * 3 + (at % 3)] ?? 0;
  });
}

const LIGHT = bandTable(COLORS.diverging);
const DARK = bandTable(COLORS.diverging_dark);

/**
 * Values to seven colours: how many standard deviations they lie from the mean of all that are drawn. On a
 * logarithmic scale both are those of the logarithms.
 */
export class SigmaScale extends ColorScale {
  /**
   * @param values All that is drawn; what is not finite does not enter.
   * @param within Least and greatest finite one of them.
   */
  constructor(
    values: Float64Array,
    within: Extent,
    transform: Transform,
    low: number,
    { dark = false }: Pick<IColorLook, 'dark'> = {}
  ) {
    super(within, transform, low, { table: dark ? DARK : LIGHT });
    const positions = values.filter(Number.isFinite).map(value => super.position(value));
    const mean = positions.reduce((sum, each) => sum + each, 0) / positions.length;
    const squares = positions.reduce((sum, each) => sum + (each - mean) ** 2, 0);
    this._mean = mean;
    const sigma = Math.sqrt(squares / positions.length);
    // What differs by rounding alone is the same.
    this._sigma = sigma > 1e-12 ? sigma : 0;
  }

  override readonly stepped = true;

  /** The mean; on a logarithmic scale that of the logarithms, as a value. */
  get mean(): number {
    return super.valueAt(this._mean);
  }

  override position(value: number): number {
    return Math.min(1, Math.max(0, (this.deviations(value) / MOST_SIGMA + 1) / 2));
  }

  override valueAt(position: number): number {
    return super.valueAt(this._mean + (2 * position - 1) * MOST_SIGMA * this._sigma);
  }

  override entry(value: number): number {
    return bandOf(this.deviations(value));
  }

  override colorAt(position: number): string {
    return this.colorOf(bandOf((2 * position - 1) * MOST_SIGMA));
  }

  /** Standard deviations between a finite value and the mean. */
  deviations(value: number): number {
    return this._sigma > 0 ? (super.position(value) - this._mean) / this._sigma : 0;
  }

  private readonly _mean: number;
  private readonly _sigma: number;
}

/** Number of the band, from 0; an end belongs to the band towards the middle. */
function bandOf(deviations: number): number {
  return SIGMA_ENDS.filter(end => (end < 0 ? deviations >= end : deviations > end)).length;
}

/** What the colour strip of a heatmap needs: params and the rows of the dataset `legend`. */
export interface IColorLegend {
  readonly params: { legendLow: number; legendAt: number[]; legendText: string[] };
  readonly rows: { from: number; to: number; color: string }[];
}

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
function marked(scale: ColorScale, position: number): string {
  const end = SIGMA_ENDS.find(each => (1 + each / MOST_SIGMA) / 2 === position);
  return scale.stepped && end !== undefined ? ` (${end < 0 ? '\u2212' : '+'}${Math.abs(end)}σ)` : '';
}

/**
 * Return the colour strip of a scale.
 *
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
    : at.map(position => formatNumber(scale.valueAt(position), 3) + marked(scale, position));
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

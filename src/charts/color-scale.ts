import COLORS from '#protocol/charts/colors.json';
import { formatNumber } from './format';

/**
 * Return the hue of a flag, the same in every view.
 *
 * @param known Every flag of the run in the order of `hello.flags`; a flag outside it takes the last, neutral
 * colour.
 */
export function flagColor(flag: string, known: readonly string[]): string {
  const index = known.indexOf(flag);
  const hues = COLORS.flags.length - 1;
  return COLORS.flags[index < 0 ? hues : index % hues] ?? COLORS.flags[0];
}

/**
 * Black or white: that of the two which is read better on a colour `#rrggbb`, by the contrast ratio of WCAG
 * 2.
 */
export function contrastColor(background: string): '#000000' | '#ffffff' {
  const [red = 0, green = 0, blue = 0] = channels(background).map(channel => {
    const share = channel / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  const luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  return (luminance + 0.05) ** 2 > 1.05 * 0.05 ? '#000000' : '#ffffff';
}

/** Most values that are looked at, evenly spaced: more of them say the same. */
const MOST_SAMPLES = 4096;
/** Part of the magnitudes that may fall into the middle of a logarithmic scale. */
const BELOW = 0.05;
const [FEWEST, MOST] = [3, 9];

/**
 * The magnitude that 5 in 100 of the finite values other than zero stay below, or NaN where there is none. Of
 * more than 4,096 values evenly spaced ones are taken, counted through all parts.
 */
export function lowMagnitude(parts: readonly ArrayLike<number>[]): number {
  const total = parts.reduce((sum, part) => sum + part.length, 0);
  const stride = Math.max(1, Math.ceil(total / MOST_SAMPLES));
  const sizes: number[] = [];
  let skip = 0;
  for (const part of parts) {
    let at = skip;
    for (; at < part.length; at += stride) {
      const size = Math.abs(part[at] ?? NaN);
      if (Number.isFinite(size) && size > 0) {
        sizes.push(size);
      }
    }
    skip = at - part.length;
  }
  sizes.sort((a, b) => a - b);
  return sizes[Math.floor(BELOW * (sizes.length - 1))] ?? NaN;
}

/**
 * Return how many decades a logarithmic colour scale spans below its greatest magnitude, 3 to 9.
 * @param low What `lowMagnitude` found; NaN for the fewest.
 */
function decadesOf(top: number, low: number): number {
  const decades = Math.ceil(Math.log10(top / low) - 1e-9);
  return Number.isFinite(decades) ? Math.min(MOST, Math.max(FEWEST, decades)) : FEWEST;
}

/** How values are spread over the colours. `log` is symmetric about zero. */
export type Transform = 'linear' | 'log';

/** Least and greatest finite value; null where there is none. */
export type Extent = readonly [number, number] | null;

const ENTRIES = 256;

export function channels(color: string): [number, number, number] {
  const value = parseInt(color.slice(1), 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

export const hexOf = (color: ArrayLike<number>): string =>
  `#${Array.from(color, channel => channel.toString(16).padStart(2, '0')).join('')}`;

/** Mix equally spaced stops linearly in sRGB: the channels at a share of their length, 0 to 1. */
export function mixed(stops: readonly string[], share: number): number[] {
  const position = share * (stops.length - 1);
  const below = Math.min(Math.floor(position), stops.length - 2);
  const [from, to] = [channels(stops[below] ?? ''), channels(stops[below + 1] ?? '')];
  return from.map((channel, at) =>
    Math.floor(channel + ((to[at] ?? 0) - channel) * (position - below) + 0.5)
  );
}

/** Mix equally spaced stops into a table of 256 entries of three bytes. */
export function colorTable(stops: readonly string[]): Uint8Array {
  return Uint8Array.from(
    Array.from({ length: ENTRIES }, (_, entry) => mixed(stops, entry / (ENTRIES - 1))).flat()
  );
}

const SEQUENTIAL = colorTable(COLORS.sequential);
const DIVERGING = colorTable(COLORS.diverging);
const DIVERGING_DARK = colorTable(COLORS.diverging_dark);

/** Round away from zero or towards it, so that the result lies outside: 2 significant digits. */
function outwards(value: number, up: boolean): number {
  if (value === 0) {
    return 0;
  }
  const power = Math.floor(Math.log10(Math.abs(value))) - 1;
  // Dividing by a positive power keeps 0.31 from becoming 0.31000000000000005.
  const unit = power >= 0 ? value / 10 ** power : value * 10 ** -power;
  const near = Math.round(unit);
  const rounded = Math.abs(unit - near) < 1e-9 ? near : up ? Math.ceil(unit) : Math.floor(unit);
  return power >= 0 ? rounded * 10 ** power : rounded / 10 ** -power;
}

export interface IColorLook {
  /** Whether the page around it is dark: then the middle of a signed scale is. */
  readonly dark?: boolean;
  /** Lowest and highest value of the colours, where these are locked. */
  readonly range?: readonly [number, number] | null;
  /** Colours instead of those that a scale has by its values: 256, three bytes each. */
  readonly table?: Uint8Array;
}

/**
 * Values to colours, as protocol/charts/README.md says: a table of 256 colours over a domain rounded
 * outwards.
 */
export class ColorScale {
  /**
   * @param extent Least and greatest finite value of all that shares the scale; null when nothing is finite.
   * @param low For `log`: what `lowMagnitude` finds in all that shares the scale.
   */
  constructor(
    within: Extent,
    transform: Transform = 'linear',
    low = NaN,
    { dark = false, range, table }: IColorLook = {}
  ) {
    const extent = within && (range ? ([Math.min(...range), Math.max(...range)] as const) : within);
    this.empty = extent === null;
    let lo = outwards(extent?.[0] ?? 0, false);
    let hi = outwards(extent?.[1] ?? 0, true);
    this.signed = lo < 0 && hi > 0;
    if (this.signed) {
      hi = Math.max(-lo, hi);
      lo = -hi;
    }
    this.domain = [lo, hi];
    this.transform = transform;
    this.table = table ?? (this.signed ? (dark ? DIVERGING_DARK : DIVERGING) : SEQUENTIAL);
    const top = Math.max(Math.abs(lo), Math.abs(hi));
    this.decades = decadesOf(top, low);
    this._knee = top / 10 ** this.decades;
    this._low = this._spread(lo);
    this._span = this._spread(hi) - this._low;
  }

  /** Whether there was no finite value at all. */
  readonly empty: boolean;

  /** Whether values lie on both sides of zero: then zero is the middle colour. */
  readonly signed: boolean;

  readonly domain: readonly [number, number];

  readonly transform: Transform;

  /** Decades that `log` spans below the greatest magnitude. */
  readonly decades: number;

  /** Whether its colours are bands, not a way from one to the next. */
  readonly stepped: boolean = false;

  /** 256 colours, three bytes each. */
  readonly table: Uint8Array;

  /** A finite value's position along the scale, 0 to 1. */
  position(value: number): number {
    if (!(this._span > 0)) {
      return 0.5;
    }
    return Math.min(1, Math.max(0, (this._spread(value) - this._low) / this._span));
  }

  /** The value at a position along the scale, 0 to 1. */
  valueAt(position: number): number {
    if (!(this._span > 0)) {
      return this.domain[0];
    }
    const spread = this._low + position * this._span;
    return this.transform === 'linear'
      ? spread
      : Math.sign(spread) * Math.expm1(Math.abs(spread)) * this._knee;
  }

  /** Return the table entry, 0 to 255, of a finite value. */
  entry(value: number): number {
    return Math.floor((ENTRIES - 1) * this.position(value) + 0.5);
  }

  /** The colour at a position along the scale as `#rrggbb`. */
  colorAt(position: number): string {
    return this.colorOf(Math.floor((ENTRIES - 1) * position + 0.5));
  }

  protected colorOf(entry: number): string {
    return hexOf(this.table.subarray(3 * entry, 3 * entry + 3));
  }

  private _spread(value: number): number {
    if (this.transform === 'linear' || this._knee === 0) {
      return value;
    }
    return Math.sign(value) * Math.log1p(Math.abs(value) / this._knee);
  }

  private readonly _knee: number;
  private readonly _low: number;
  private readonly _span: number;
}

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

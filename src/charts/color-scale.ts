import COLORS from '#protocol/charts/colors.json';

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

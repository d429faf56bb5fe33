/** @jest-environment ./jest.environment.node.js */
import { readFileSync } from 'fs';
import { join } from 'path';
import { channels, ColorScale, colorTable, lowMagnitude, flagColor } from '../color-scale';
import COLORS from '#protocol/charts/colors.json';

/** Perceived lightness L* of a colour. */
function lightness(color: string): number {
  const [red, green, blue] = channels(color).map(channel => {
    const share = channel / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  const luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  return luminance > 0.008856 ? 116 * Math.cbrt(luminance) - 16 : 903.3 * luminance;
}

it('uses the colours of the contract', () => {
  const path = join(__dirname, '../../../protocol/charts/colors.json');
  expect(COLORS).toEqual(JSON.parse(readFileSync(path, 'utf8')));
});

it('grows lighter along the sequential scale, in about even steps', () => {
  const scale = new ColorScale([0, 1]);
  const shades = Array.from({ length: 33 }, (_, at) => lightness(scale.colorAt(at / 32)));
  const steps = shades.slice(1).map((shade, at) => shade - (shades[at] ?? 0));
  expect(Math.min(...steps)).toBeGreaterThan(0);
  expect(Math.max(...steps)).toBeLessThan(2.5 * (((shades[32] ?? 0) - (shades[0] ?? 0)) / 32));
});

it.each(['light', 'dark'] as const)('orders the layers by lightness on a %s page', tone => {
  const shades = COLORS.layers[tone].map(lightness);
  expect(shades).toEqual([...shades].sort((a, b) => a - b));
});

/** Red, green and blue of a colour as light, 0 to 1. */
const light = (color: string): number[] =>
  channels(color).map(channel =>
    channel / 255 <= 0.04045 ? channel / 255 / 12.92 : ((channel / 255 + 0.055) / 1.055) ** 2.4
  );

/** How eyes see: usually, and without cones for red, green and blue (Machado et al. 2009, in linear sRGB). */
const EYES: Readonly<Record<string, readonly (readonly [number, number, number])[]>> = {
  usual: [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1]
  ],
  protan: [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998]
  ],
  deutan: [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881]
  ],
  tritan: [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.3039]
  ]
};

/** CIE L*a*b* of a colour as some eyes see it. */
function seen(color: string, eyes: string): number[] {
  const from = light(color);
  const [red = 0, green = 0, blue = 0] = (EYES[eyes] ?? []).map(row =>
    Math.min(
      1,
      Math.max(
        0,
        row.reduce((sum, share, at) => sum + share * (from[at] ?? 0), 0)
      )
    )
  );
  const [x, y, z] = [
    (0.4124564 * red + 0.3575761 * green + 0.1804375 * blue) / 0.95047,
    0.2126729 * red + 0.7151522 * green + 0.072175 * blue,
    (0.0193339 * red + 0.119192 * green + 0.9503041 * blue) / 1.08883
  ].map(each => (each > 0.008856 ? Math.cbrt(each) : 7.787 * each + 16 / 116)) as [number, number, number];
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

/** The contrast ratio of WCAG 2. */
function contrast(one: string, other: string): number {
  const [low = 0, high = 0] = [one, other]
    .map(color => light(color))
    .map(([red = 0, green = 0, blue = 0]) => 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)
    .sort((a, b) => a - b);
  return high / low;
}

it.each(Object.keys(EYES))('%s eyes tell the colours of runs and groups apart', eyes => {
  for (const tone of ['light', 'dark'] as const) {
    const all = COLORS.categorical[tone].map(color => seen(color, eyes));
    const nearest = all.flatMap((one, at) =>
      all.slice(at + 1).map(other => Math.hypot(...one.map((value, place) => value - (other[place] ?? 0))))
    );
    // Two colours side by side look different from about 2.3 on; lines are thin and lie apart.
    expect(Math.min(...nearest)).toBeGreaterThan(12);
  }
});

it('lines and marks have three times the contrast of their ground, in both themes', () => {
  const marks = [...Object.values(COLORS.severity), ...Object.values(COLORS.events), COLORS.neutral];
  for (const [tone, ground] of [
    ['light', '#ffffff'],
    ['dark', '#212121']
  ] as const) {
    for (const color of [...COLORS.categorical[tone], ...marks, COLORS.nonfinite[0], COLORS.rule]) {
      expect([color, tone, contrast(color, ground) >= 3]).toEqual([color, tone, true]);
    }
  }
});

it('is lightest at zero and darkens to both sides when values have both signs', () => {
  const scale = new ColorScale([-1, 3]);
  expect(scale.domain).toEqual([-3, 3]);
  const shades = Array.from({ length: 21 }, (_, at) => lightness(scale.colorAt(at / 20)));
  expect(shades.indexOf(Math.max(...shades))).toBe(10);
  expect(scale.entry(0)).toBe(128);
});

it.each([
  [
    [0, 0.9731],
    [0, 0.98]
  ],
  [
    [0.123, 0.456],
    [0.12, 0.46]
  ],
  [
    [-0.377, 0.2],
    [-0.38, 0.38]
  ],
  [
    [0, 1234],
    [0, 1300]
  ],
  [
    [0, 100],
    [0, 100]
  ],
  [
    [-5, -1],
    [-5, -1]
  ],
  [
    [1e-9, 2.01e-9],
    [1e-9, 2.1e-9]
  ]
] as const)('rounds %j outwards to %j', (extent, domain) => {
  expect(new ColorScale(extent).domain).toEqual(domain);
});

it('spreads small magnitudes with the log transform, the same on both sides of zero', () => {
  const [linear, log] = [new ColorScale([-1, 1]), new ColorScale([-1, 1], 'log')];
  expect(log.position(0.01)).toBeGreaterThan(linear.position(0.01) + 0.1);
  expect(log.position(-0.01)).toBeCloseTo(1 - log.position(0.01), 12);
  expect(log.valueAt(log.position(0.25))).toBeCloseTo(0.25, 12);
});

it('puts a constant in the middle and an empty scale nowhere', () => {
  expect(new ColorScale([5, 5]).position(5)).toBe(0.5);
  expect(new ColorScale(null).empty).toBe(true);
});

it('mixes the stops by the table that the contract describes', () => {
  const table = colorTable(['#000000', '#ffffff']);
  expect(Array.from({ length: 256 }, (_, entry) => table[entry * 3])).toEqual(
    Array.from({ length: 256 }, (_, entry) => entry)
  );
});

it.each(['sequential', 'diverging'] as const)('begins and ends a %s table with its stops', role => {
  const scale = new ColorScale(role === 'sequential' ? [0, 1] : [-1, 1]);
  const stops = COLORS[role];
  expect([scale.colorAt(0), scale.colorAt(1)]).toEqual([stops[0], stops.at(-1)]);
  expect(scale.table).toEqual(colorTable(stops));
});

it('gives a flag the same hue whatever else is drawn', () => {
  const known = ['InputTokens', 'MLP1_mat_mul', 'HiddenStates'];
  expect(new Set(known.map(flag => flagColor(flag, known))).size).toBe(3);
  expect(flagColor('HiddenStates', known)).toBe(COLORS.flags[2]);
});

const fall = (count: number, decades: number): number[] =>
  Array.from({ length: count }, (_, at) => (at % 2 ? -1 : 1) * 10 ** ((-at / count) * decades));

it.each([
  ['a line through zero', Array.from({ length: 2001 }, (_, at) => (at - 1000) / 1000), 3],
  ['five decades', fall(100, 5), 5],
  ['twelve decades', fall(100, 12), 9],
  ['more values than are sampled', fall(10_000, 7), 7],
  ['a few tiny values among large ones', [...Array<number>(99).fill(1), 1e-30], 3],
  ['zeros and what is not finite', [0, 0, NaN, Infinity, 1, 1e-6], 6],
  ['nothing', [0, NaN], 3]
])('spans the decades of the data with the log transform: %s', (_, values, decades) => {
  const scale = new ColorScale([-1, 1], 'log', lowMagnitude([values]));
  expect(scale.decades).toBe(decades);
  expect(scale.position(10 ** -decades)).toBeLessThan(0.56);
  expect(scale.valueAt(scale.position(0.25))).toBeCloseTo(0.25, 9);
});

it('samples several pictures as if they were one', () => {
  const values = fall(9000, 6);
  expect(lowMagnitude([values.slice(0, 10), values.slice(10, 4000), values.slice(4000)])).toBe(
    lowMagnitude([values])
  );
});

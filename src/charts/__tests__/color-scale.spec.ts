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

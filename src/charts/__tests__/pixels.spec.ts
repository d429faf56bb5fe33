/** @jest-environment ./jest.environment.node.js */
import { channels, ColorScale } from '../color-scale';
import COLORS from '#protocol/charts/colors.json';
import { paint } from '../pixels';
import { encodePng } from '../pictures';
import { readPng } from './read-png';

const scale = new ColorScale([0, 1]);
const pixel = (pixels: ReturnType<typeof paint>, x: number, y: number): number[] => [
  ...pixels.data.subarray((y * pixels.width + x) * 4, (y * pixels.width + x) * 4 + 4)
];

it('paints one pixel for each finite cell', () => {
  const pixels = paint({ rows: 2, columns: 3, values: [0, 0.5, 1, 1, 0.5, 0] }, scale);
  expect([pixels.width, pixels.height]).toEqual([3, 2]);
  expect(pixel(pixels, 0, 0)).toEqual([...channels(scale.colorAt(0)), 255]);
  expect(pixel(pixels, 2, 0)).toEqual([...channels(scale.colorAt(1)), 255]);
  expect(pixel(pixels, 1, 1)).toEqual([...channels(scale.colorAt(0.5)), 255]);
});

it.each([NaN, Infinity, -Infinity])('paints %d in two colours that no finite value has', value => {
  const pixels = paint({ rows: 1, columns: 2, values: [value, 0.3] }, scale);
  const block = Array.from({ length: 36 }, (_, at) => pixel(pixels, at % 6, Math.floor(at / 6)).join());
  expect(new Set(block)).toEqual(new Set(COLORS.nonfinite.map(color => [...channels(color), 255].join())));
  const table = new Set(
    Array.from({ length: 256 }, (_, entry) => scale.table.subarray(entry * 3, entry * 3 + 3).join())
  );
  expect(COLORS.nonfinite.some(color => table.has(channels(color).join()))).toBe(false);
});

it('leaves a missing cell transparent, even where its value is zero or NaN', () => {
  const pixels = paint(
    { rows: 1, columns: 3, values: [0, NaN, 0], missing: new Uint8Array([1, 1, 0]) },
    scale
  );
  expect(pixels.width).toBe(3);
  expect([pixel(pixels, 0, 0)[3], pixel(pixels, 1, 0)[3], pixel(pixels, 2, 0)[3]]).toEqual([0, 0, 255]);
});

it('paints finite cells beside others in the colours of their values, and diagonals through what is not finite', () => {
  const missing = new Uint8Array([1, 0, 0, 0]);
  const pixels = paint({ rows: 2, columns: 2, values: [0, NaN, Infinity, 1], missing }, scale);
  expect([pixels.width, pixels.height]).toEqual([12, 12]);
  const [plain, stripe] = COLORS.nonfinite.map(color => [...channels(color), 255]);
  for (let y = 0; y < 12; y += 1) {
    for (let x = 0; x < 12; x += 1) {
      const odd = (x + y) % 4 === 0 ? stripe : plain;
      const [left, top] = [x < 6, y < 6];
      const expected = left && top ? [0, 0, 0, 0] : left || top ? odd : [...channels(scale.colorAt(1)), 255];
      expect(pixel(pixels, x, y)).toEqual(expected);
    }
  }
});

it('keeps one pixel per cell for a large picture and still tells non-finite cells apart', () => {
  const values = new Float32Array(96 * 4096 * 8);
  values[7] = NaN;
  const pixels = paint({ rows: 96 * 8, columns: 4096, values }, scale);
  expect(pixels.width).toBe(4096);
  expect(COLORS.nonfinite.map(color => [...channels(color), 255])).toContainEqual(pixel(pixels, 7, 0));
});

it('writes a PNG that holds the pixels', () => {
  const pixels = paint({ rows: 3, columns: 2, values: [0, 0.2, 0.4, 0.6, 0.8, 1] }, scale);
  expect(readPng(encodePng(pixels))).toEqual(pixels);
});

it.each([3, 1000])('writes a PNG of %i colours and any transparency', colors => {
  let seed = 1;
  const random = (): number => (seed = (seed * 48271) % 2147483647);
  const table = Array.from({ length: colors }, () => [random(), random(), random(), random()]);
  const data = Uint8ClampedArray.from(
    Array.from({ length: 31 * 47 }, () => table[random() % colors]?.map(each => each & 255) ?? []).flat()
  );
  const pixels = { width: 47, height: 31, data };
  expect(readPng(encodePng(pixels))).toEqual(pixels);
});

it('makes a picture of large cells seventy times smaller', () => {
  const data = Uint8ClampedArray.from({ length: 400_000 }, (_, at) => (at >> 8) & 255);
  expect(encodePng({ width: 1000, height: 100, data }).length).toBeLessThan(data.length / 70);
});

it.each(['linear', 'log'] as const)(
  'paints every cell of a large picture with the entry of its value, %s',
  transform => {
    const values = Float32Array.from({ length: 64 * 64 }, (_, at) => Math.sin(at) * (at % 7));
    const spread = new ColorScale(
      [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))],
      transform
    );
    const pixels = paint({ rows: 64, columns: 64, values }, spread);
    const wrong = Array.from(values).filter((value, at) => {
      const entry = spread.entry(value) * 3;
      return (
        pixel(pixels, at % 64, Math.floor(at / 64))
          .slice(0, 3)
          .join() !== spread.table.subarray(entry, entry + 3).join()
      );
    });
    expect(wrong).toEqual([]);
  }
);

/** @jest-environment ./jest.environment.node.js */

import { inflateSync } from 'node:zlib';
import { zlibSync } from 'fflate';
import { coarse, decimal, pack, shorten, unpack } from '../packing';

const deflate = (bytes: Uint8Array): Uint8Array => zlibSync(bytes, { level: 9 });

describe('bytes of a page', () => {
  it.each([0, 1, 7, 8, 4099])(
    'lie deflated by planes, and come back as they were: %i of them',
    async count => {
      const bytes = Uint8Array.from({ length: count }, (_, at) => (at * 37 + (at >> 3)) & 255);
      const packed = pack(bytes, deflate);
      const planes = [0, 1, 2, 3, 4, 5, 6, 7].flatMap(plane =>
        [...bytes].filter((_, at) => at % 8 === plane)
      );
      expect([...inflateSync(Buffer.from(packed, 'base64'))]).toEqual(planes);
      expect(await unpack(packed)).toEqual(bytes);
    }
  );

  it('take less room by planes where numbers are alike', () => {
    const numbers = Float64Array.from({ length: 4000 }, (_, at) => 1_790_000_000 + at);
    const bytes = new Uint8Array(numbers.buffer);
    expect(pack(bytes, deflate).length).toBeLessThan(deflate(bytes).length);
  });
});

describe('values of three digits', () => {
  it.each([1e-30, 1e-6, 1, 3e4, 1e30])('hold over any range: about %d', size => {
    const values = Float32Array.from([size, -size / 3, size / 900, 0]);
    decimal(coarse(values)).forEach((value, at) => {
      expect(Math.abs(value - (values[at] ?? 0))).toBeLessThanOrEqual(5.5e-3 * Math.abs(values[at] ?? 0));
    });
    coarse(values).forEach((value, at) => {
      expect(Math.abs(value - (values[at] ?? 0))).toBeLessThanOrEqual(5e-4 * Math.abs(values[at] ?? 0));
    });
  });

  it('leave what is not finite, and never make it', () => {
    expect([...coarse(Float32Array.from([NaN, Infinity, -Infinity, -0]))]).toEqual([
      NaN,
      Infinity,
      -Infinity,
      -0
    ]);
    const greatest = coarse(Float32Array.from([3.4028234e38]))[0] ?? NaN;
    expect(greatest).toBeGreaterThan(3.39e38);
    expect(greatest).toBeLessThan(Infinity);
  });

  it('read as the decimals that they stand for', () => {
    expect([...decimal(coarse(Float32Array.from([0.12341])))]).toEqual([Math.fround(0.123)]);
  });
});

describe('numbers of nine digits', () => {
  it('are cut off in place, over the whole range', () => {
    const before = [Math.PI, -1e-200 / 3, 1e200 / 7, 0, 12345];
    const numbers = Float64Array.from(before);
    shorten(numbers);
    numbers.forEach((value, at) =>
      expect(Math.abs(value - (before[at] ?? 0))).toBeLessThanOrEqual(2.4e-10 * Math.abs(before[at] ?? 0))
    );
    expect(numbers[4]).toBe(12345);
    const odd = Float64Array.from([NaN, Infinity]);
    shorten(odd);
    expect([...odd]).toEqual([NaN, Infinity]);
  });
});

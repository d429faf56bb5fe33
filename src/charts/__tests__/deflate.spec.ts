import { inflateRawSync } from 'zlib';
import { deflate } from '../deflate';

const same = (bytes: Uint8Array): void =>
  expect(Buffer.from(inflateRawSync(deflate(bytes))).equals(Buffer.from(bytes))).toBe(true);

it('gives back what was compressed, whatever it is', () => {
  let seed = 1;
  const random = (): number => (seed = (seed * 48271) % 2147483647);
  same(new Uint8Array(0));
  same(Uint8Array.of(200));
  same(new Uint8Array(100_000));
  same(Uint8Array.from({ length: 70_000 }, () => random() & 255));
  same(Uint8Array.from({ length: 90_000 }, (_, at) => (at % 997) ^ (random() % 50 === 0 ? 1 : 0)));
});

it('makes a picture of large cells seventy times smaller', () => {
  const cells = Uint8Array.from({ length: 400_000 }, (_, at) => (at >> 8) & 255);
  expect(deflate(cells).length).toBeLessThan(cells.length / 70);
});

/** @jest-environment ./jest.environment.node.js */
import { formatBytes, formatCount, formatFull, formatInteger, formatNumber } from '../format';

const thin = (text: string): string => text.replace(/ /g, '\u202f');

it.each([
  [0, '0'],
  [1, '1'],
  [0.1, '0.1'],
  [1.23456, '1.235'],
  [0.00123456, '0.001235'],
  [0.00001, '0.00001'],
  [0.0000099999, '0.00001'],
  [0.00000999, '9.99e−6'],
  [12345.6, '12 350'],
  [99994, '99 990'],
  [99996, '1e5'],
  [123456, '1.235e5'],
  [-0.5, '−0.5'],
  [-1234, '−1 234'],
  [-1.5e-7, '−1.5e−7'],
  [NaN, 'NaN'],
  [Infinity, '∞'],
  [-Infinity, '−∞']
])('writes %d as %s', (value, text) => {
  expect(formatNumber(value)).toBe(thin(text));
});

it('keeps as many digits as are asked for', () => {
  expect(formatNumber(0.123456, 3)).toBe('0.123');
  expect(formatNumber(1.20001, 3)).toBe('1.2');
});

it('writes a float32 with the digits that tell it from its neighbours', () => {
  expect(formatFull(Math.fround(0.1), true)).toBe('0.1');
  expect(formatFull(Math.fround(0.1))).toBe('0.10000000149011612');
  expect(formatFull(Math.fround(1234567.9), true)).toBe(thin('1 234 567.9'));
  expect(formatFull(-Infinity, true)).toBe('−∞');
});

it('reads back every float32 that it writes', () => {
  for (let seed = 1; seed < 2000; seed++) {
    const value = Math.fround(Math.sin(seed) * 10 ** ((seed % 12) - 6));
    const text = formatFull(value, true)
      .replace(/\u2212/g, '-')
      .replace(/\u202f/g, '');
    expect(Math.fround(Number(text))).toBe(value);
  }
});

it('writes steps in full with thin spaces', () => {
  expect(formatInteger(1240)).toBe(thin('1 240'));
  expect(formatInteger(1234567)).toBe(thin('1 234 567'));
});

it('writes counts and bytes with SI suffixes', () => {
  expect([999, 1000, 8700, 999_999, 12_400_000].map(formatCount)).toEqual([
    '999',
    '1k',
    '8.7k',
    '1M',
    '12.4M'
  ]);
  expect([512, 42_100, 1e9].map(formatBytes)).toEqual(['512 B', '42.1 kB', '1 GB']);
});

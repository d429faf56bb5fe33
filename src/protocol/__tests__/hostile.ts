import fc from 'fast-check';

/** Names that plain objects know already, and others that have broken something somewhere. */
export const HOSTILE_NAMES: readonly string[] = [
  ...Object.getOwnPropertyNames(Object.prototype),
  'prototype',
  'length',
  'name',
  'then',
  'toJSON',
  '',
  ' ',
  '0',
  '10',
  '-1',
  'NaN',
  'null',
  'undefined',
  'a.b',
  'a/b',
  '$ref',
  '<b>&amp;"\'',
  '\u202eabc',
  'é',
  '名前',
  '😀',
  '\u0000'
];

/** A name as a hub or a file may bring it: mostly one of the worst. */
export const name = (): fc.Arbitrary<string> =>
  fc.oneof(
    { weight: 3, arbitrary: fc.constantFrom(...HOSTILE_NAMES) },
    { weight: 1, arbitrary: fc.string({ unit: 'grapheme', maxLength: 12 }) }
  );

/** Different names. */
export const names = (least = 1, most = 8): fc.Arbitrary<string[]> =>
  fc.uniqueArray(name(), { minLength: least, maxLength: most });

/** @jest-environment ./jest.environment.node.js */
import { compareNatural, parseName, type ITensorName } from '..';
import NAMES from '../../../protocol/fixtures/moments/names.json';

describe('the name of a tensor', () => {
  it.each(NAMES)('$name says what the golden case says', ({ name, ...expected }) => {
    expect(parseName(name)).toEqual(expected as ITensorName);
  });

  it('is read where it is odd', () => {
    expect(parseName('')).toMatchObject({ layer: null, stack: '(global)', item_type: '', role: null });
    expect(parseName('7')).toMatchObject({ layer: null, item_type: '7' });
    expect(parseName('layers.1234567890.weight').layer).toBeNull();
    expect(parseName('Layers.٣.weight').layer).toBeNull();
    expect(parseName('h.3')).toMatchObject({ layer: 3, stack: 'h', item_type: '(layer)' });
  });
});

describe('natural order', () => {
  it('compares numbers inside of names as numbers', () => {
    const names = ['layers.10.b', 'layers.2.b', 'layers.b', 'layers.2', 'layers.2.a', '3', 'layers'];
    expect(names.sort(compareNatural)).toEqual([
      '3',
      'layers',
      'layers.2',
      'layers.2.a',
      'layers.2.b',
      'layers.10.b',
      'layers.b'
    ]);
    expect(compareNatural('a99999999999999999999', 'a100000000000000000000')).toBeLessThan(0);
    expect(compareNatural('a002', 'a2')).toBe(0);
  });
});

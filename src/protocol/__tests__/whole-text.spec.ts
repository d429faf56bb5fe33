/** @jest-environment ./jest.environment.node.js */
import { ProtocolError, fullViewOptions } from '..';
import { isWhole } from '../texts';

it.each([
  '',
  'é',
  '\u{1f600}',
  '日本語',
  '__proto__',
  'a\nb',
  '\u202e',
  1,
  null,
  true,
  [['a']],
  { constructor: 'x' }
])('takes %j', value => {
  expect(isWhole(value)).toBe(true);
});

it.each([['\ud800'], ['a\udfffb'], [['x', '\ud800']], [{ '\ud800': 1 }], [{ a: { b: '\udc00\ud800' } }]])(
  'refuses half a surrogate pair in %j',
  value => {
    expect(isWhole(value)).toBe(false);
    const options = { view: 'heatmap', flag: value };
    expect(() => fullViewOptions(options)).toThrow(ProtocolError);
  }
);

it('refuses what nests too deeply, however deep that is', () => {
  const deep: unknown = JSON.parse('['.repeat(50_000) + ']'.repeat(50_000));
  expect(() => fullViewOptions({ view: 'heatmap', flag: deep })).toThrow(/at most 32 levels/);
});

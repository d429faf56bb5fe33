/** @jest-environment node */
import CASES from '../../../protocol/fixtures/patterns.json';
import { AggregateError } from '../aggregate-error';
import { readPattern } from '../moment-filter';
import { Pattern } from '../pattern';

it('finds in names what RE2 finds, group by group, and refuses the rest with the same words', () => {
  const found = CASES.map(({ pattern, names }) => {
    try {
      const read = new Pattern(pattern);
      return {
        pattern,
        names,
        found: names?.map(name => {
          const [whole = '', ...groups] = read.exec(name) ?? [];
          expect(read.test(name)).toBe(read.exec(name) !== null);
          return read.exec(name) && (groups.length > 0 ? groups.map(text => text ?? '') : [whole]);
        })
      };
    } catch (error) {
      return { pattern, refused: error instanceof Error && error.name === 'PatternError' && error.message };
    }
  });
  expect(found).toEqual(CASES);
});

it('says in a typed error what cannot be used, and why', () => {
  expect(() => readPattern('(a)\\1', "filter's pattern")).toThrow(AggregateError);
  expect(() => readPattern('(a)\\1', "filter's pattern")).toThrow(
    "The filter's pattern is no regular expression that can be used here: it refers back to what a group found"
  );
});

it.each([
  '(\\w+\\.?)+#',
  '(a+)+b$',
  '(a|a)*b',
  '(.*)*x',
  '(.{0,300}x)#',
  '(?:a?){100}a{100}#',
  '(\\w*)*\\d$'
])('looks for %s in a long name without going back', text => {
  const pattern = new Pattern(text);
  const start = performance.now();
  expect(pattern.test('a'.repeat(30_000))).toBe(false);
  // Half a microsecond each where it is quiet; a backtracking engine takes longer than the universe has been there.
  expect(performance.now() - start).toBeLessThan(1000);
});

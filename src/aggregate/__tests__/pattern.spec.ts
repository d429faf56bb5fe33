/** @jest-environment ./jest.environment.node.js */
import CASES from '../../../protocol/fixtures/patterns.json';
import { AggregateError } from '../moment-merge';
import { readPattern, Pattern, PatternError } from '../moment-keys';

it('finds in names what RE2 finds, group by group, and refuses what it refuses', () => {
  const found = CASES.map(({ pattern, names }) => {
    try {
      const read = new Pattern(pattern);
      return {
        pattern,
        names,
        found: names?.map(name => {
          expect(read.test(name)).toBe(read.find(name) !== null);
          return read.find(name);
        })
      };
    } catch (error) {
      return { pattern, refused: error instanceof Error && error.name === 'PatternError' };
    }
  });
  expect(found).toEqual(CASES);
});

it('says in a typed error what cannot be used, and why', () => {
  expect(() => readPattern('(a)\\1', "filter's pattern")).toThrow(AggregateError);
  expect(() => readPattern('(a)\\1', "filter's pattern")).toThrow(
    /^The filter's pattern is no regular expression that can be used here: invalid escape sequence, at \\1\. .* nor refer back/
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

it('takes every pattern that kernel and server take, and refuses in no time what is long once its repeats are written out', () => {
  for (const longest of ['a{993}', '(?:a?){330}', '(a{0,300})', '(?:(a)|b){140}', '(a)'.repeat(166)]) {
    expect(new Pattern(longest).test('')).toBeDefined();
  }
  const start = performance.now();
  for (const long of ['a{1000}{1000}', '(a?){1000}(a?){1000}', `(${'a'.repeat(90)}){100}`]) {
    expect(() => new Pattern(long)).toThrow(PatternError);
  }
  expect(performance.now() - start).toBeLessThan(1000);
});

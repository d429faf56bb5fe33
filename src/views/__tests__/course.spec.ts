/** @jest-environment ./jest.environment.node.js */
import { SeededRandom } from '../../protocol/seeded-random';
import { drawnValues } from '../statistics/line';
import { changeWords, scalarsWords } from '../shared/change-words';
import { courseOf } from '../shared/course';
import { untranslated } from '../shared/translate';

const plain = (text: string): string => text.replace(/\u202f/g, ' ');
const steps = Array.from({ length: 400 }, (_, at) => at * 10);

/** What is said of a loss whose value at each step is told; noise of 1 % lies over it. */
function told(valueAt: (step: number) => number, at = steps, starts: number[] = []): string {
  const random = new SeededRandom(5);
  const values = at.map(step => valueAt(step) * (1 + random.centred() / 50));
  return plain(scalarsWords([{ name: 'loss', step: at, value: values, unit: 'nats', starts }], untranslated));
}

it('tells a spike with its ends, its step and its height, wherever it lies and however long it lasts', () => {
  for (const [from, to] of [
    [1450, 1450],
    [50, 60],
    [2000, 2600]
  ] as const) {
    const words = told(step => (step >= from && step <= to ? 8.2 : 2.6));
    expect(words).toMatch(/^loss (began|fell|rose|stayed)/);
    expect(words).toMatch(/On the way it rose from 2\.\d+ at step [\d ]+ to 8\.\d+ at step/);
    expect(words.replace(/ (?=\d{3}\b)/g, '')).toContain(`was back at step ${to + 10}`);
  }
  expect(told(step => (step === 2000 ? 4.8 : 2 + 4 * Math.exp(-step / 300)))).toContain(
    'to 4.765 at step 2 000'
  );
  expect(told(step => (step === 2000 ? 0.1 : 2.6))).toContain('On the way it fell from');
});

it('tells where a jump lies, and of a drift only its ends', () => {
  const jump = told(step => (step < 2000 ? 2 : 4));
  expect(jump).toMatch(
    /^loss rose from (2|1\.9)\S* to \S+ nats between step 0 and 3 990, most of it between/
  );
  expect(jump).toMatch(/most of it between step 1 [\d ]+ and 2 000|most of it between step 1 990 and 2/);
  const drift = told(step => 2 + step / 1000);
  expect(drift).toMatch(/^loss rose from (2|1\.9)\S* to (5\.9|6)\S* nats between step 0 and 3 990\.$/);
});

it('calls a plateau and noise what they are', () => {
  const words = told(() => 2.6);
  expect(words).toMatch(/^loss (stayed between|fell|rose)/);
  expect(words).not.toContain('On the way');
  const wobbling = told(step => 2.6 + 0.4 * Math.sin(step * 7.13 + 2.2));
  expect(wobbling).toMatch(/^loss stayed between 2\.\d+ and 3\S* nats from step 0 to 3 990\.$/);
});

it('names what is not finite first, and missing steps', () => {
  expect(told(step => (step === 300 ? NaN : 2.6))).toMatch(/^loss is NaN first at step 300\. loss /);
  expect(told(step => (step >= 300 ? Infinity : 2.6))).toMatch(/^loss is ∞ from step 300 on\. loss /);
  const gap = steps.filter(step => step < 1000 || step >= 2000);
  expect(told(() => 2.6, gap, [2000])).toContain('It has no value between step 990 and 2 000.');
});

it('a layer that departs and returns is told as such', () => {
  const values = steps.map(step => (step === 1500 ? 9 : 1));
  expect(plain(changeWords('rms', [{ layer: 3, steps, values }], untranslated))).toBe(
    'rms rose from 1 to 9 between step 1 490 and 1 500 in layer 3, and was back at step 1 510.'
  );
});

it('noise alone departs from nothing, at any length', () => {
  for (const length of [10, 100, 1000, 20_000]) {
    const random = new SeededRandom(length);
    const values = Array.from({ length }, () => 1 + random.centred() + random.centred() + random.centred());
    expect(courseOf({ steps: values.map((_, at) => at), values }).departure).toBeNull();
  }
});

it('draws nothing, not 0, where fewer values of a group are finite than not', () => {
  const groups = {
    value: Float64Array.of(3, 0, 2, NaN),
    count: Float64Array.of(100, 4, 60, 0),
    nonFinite: Float64Array.of(0, 96, 40, 100)
  };
  expect([...drawnValues(groups, { statistic: 'l2' })]).toEqual([3, NaN, 2, NaN]);
  expect(drawnValues(groups, { statistic: 'nonfinite' })).toBe(groups.value);
});

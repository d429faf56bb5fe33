/** @jest-environment ./jest.environment.node.js */
import { MemoryRun } from '../../store/__tests__/memory-run';
import { readView } from '../still';
import { TrendMap } from '../trend/trend-map';

const t = (text: string, ...values: unknown[]): string =>
  text.replace(/%(\d)/g, (_, at: string) => String(values[Number(at) - 1]));

it('a map of more steps than columns shows a spike wherever in its column it lies', () => {
  const steps = Float64Array.from({ length: 12_288 }, (_, at) => at);
  const drawn = (spike: number, value: number): unknown => {
    const values = steps.map(step => (step === spike ? value : 1));
    const series = [{ layer: 0, steps, values, nonFinite: new Float64Array(steps.length), starts: [] }];
    const look = { range: [-10, 10] as const };
    const picture = new TrendMap(t).take({
      ...{ series, transform: 'linear', look, statistic: 'rms', filledTo: null }
    });
    expect(picture.caption.join(' ')).toContain('the one farthest from the middle of the layer');
    return picture.recipe.datasets['pictures']?.[0]?.['url'];
  };
  const without = drawn(-1, 1);
  for (const at of [6000, 6001, 6002]) {
    expect([drawn(at, 9), drawn(at, -9), drawn(at, NaN)]).not.toContain(without);
  }
});

it('a map is of one run by step, and says so where other runs or another axis are asked for', async () => {
  const run = new MemoryRun();
  for (const step of [1, 2, 5]) {
    run.add({ step, layer: 0, shape: [1, 2, 1], values: Float32Array.of(step, -step) });
  }
  const drawn = async (align: 'step' | 'time') =>
    (
      await readView(run, { view: 'trend', flag: 'MLP1_mat_mul', statistic: 'max', kind: 'heatmap', align })
    )[0];
  const [byStep, byTime] = [await drawn('step'), await drawn('time')];
  const alone = 'A map is of this run alone, by step';
  expect(byTime?.recipe).toEqual(byStep?.recipe);
  expect(byTime?.recipe?.texts['xTitle']).toBe('step');
  expect(byTime?.caption.join(' ')).toContain(alone);
  expect(byStep?.caption.join(' ')).not.toContain(alone);
});

/** @jest-environment node */
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
    expect(picture.caption.join(' ')).toContain('the one farthest from 0');
    return picture.recipe.datasets['pictures']?.[0]?.['url'];
  };
  const without = drawn(-1, 1);
  for (const at of [6000, 6001, 6002]) {
    expect([drawn(at, 9), drawn(at, -9), drawn(at, NaN)]).not.toContain(without);
  }
});

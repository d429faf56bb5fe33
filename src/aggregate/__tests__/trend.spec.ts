/** @jest-environment ./jest.environment.node.js */
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { rowOf as tensorRow } from '../../store/__tests__/memory-run';
import type { ITensorRow } from '../../store/tensor-data';
import type { KeptStatistic, Statistic } from '..';
import { AggregateError, KEPT_STATISTICS, byLayer, momentsOf, remember, trend } from '..';

const floats = (...numbers: number[]): Float64Array => Float64Array.from(numbers);

interface IPoint {
  step: number;
  layer: number;
  value: number | string;
}

interface ICase {
  rows: { step: number; layer: number; values: (number | string)[] }[];
  expected: Record<KeptStatistic, IPoint[]>;
}

const folder = join(__dirname, '../../../protocol/fixtures/aggregate');
const cases = readdirSync(folder).map((name): [string, ICase] => [
  name.replace('.json', ''),
  JSON.parse(readFileSync(join(folder, name), 'utf8'))
]);

interface IBand {
  axes: string[];
  positions: string;
  vector: number;
  compressor: string;
  rows: { step: number; layer: number; shape: number[]; values: (number | string)[] }[];
  expected: Record<
    'none' | 'std' | 'ci95',
    { step: number; layer: number; value: number; half?: number | string; units?: number }[]
  >;
}

const bands = readdirSync(join(folder, '../bands')).map((name): [string, IBand] => [
  name.replace('.json', ''),
  JSON.parse(readFileSync(join(folder, '../bands', name), 'utf8'))
]);

function rowOf(step: number, layer: number, values: Iterable<number>): ITensorRow {
  const flat = Float32Array.from(values);
  const shape = [flat.length];
  return tensorRow({ step, layer, flag: 'F', compressor: '', sourceShape: shape, shape, values: flat });
}

describe('trend', () => {
  it('has golden cases', () => {
    expect(cases.length).toBeGreaterThanOrEqual(8);
  });

  describe.each(cases)('of the golden case %s', (_, { rows, expected }) => {
    it.each(KEPT_STATISTICS)('gives the %s of what was kept that is written there', statistic => {
      const columns = trend(
        rows.map(row => rowOf(row.step, row.layer, row.values.map(Number))),
        statistic === 'nonfinite' ? statistic : `kept_${statistic}`
      );
      const points = expected[statistic];
      expect(Array.from(columns.step)).toEqual(points.map(point => point.step));
      expect(Array.from(columns.layer)).toEqual(points.map(point => point.layer));
      points.forEach((point, index) => {
        const value = columns.value[index] ?? Number.NaN;
        const wanted = Number(point.value);
        // Twelve digits, relative: sums are added in another order than numpy does.
        expect(Number.isNaN(value)).toBe(Number.isNaN(wanted));
        if (!Number.isNaN(wanted)) {
          expect(Math.abs(value - wanted)).toBeLessThanOrEqual(Math.abs(wanted) * 1e-12);
        }
      });
    });
  });

  describe.each(bands)('of the band %s', (_, { rows, expected, axes, positions, vector, compressor }) => {
    it.each(['none', 'std', 'ci95'] as const)('is as wide as is written there for %s', interval => {
      const columns = trend(
        rows.map(({ step, layer, shape, values }) => ({
          ...rowOf(step, layer, values.map(Number)),
          shape,
          compressor
        })),
        'mean',
        { axes, positions, vector, interval }
      );
      expect(columns.half === undefined).toBe(interval === 'none');
      expect(columns.value).toHaveLength(expected[interval].length);
      expected[interval].forEach((point, index) => {
        expect([columns.step[index], columns.layer[index]]).toEqual([point.step, point.layer]);
        expect(columns.value[index]).toBeCloseTo(point.value, 10);
        expect(columns.units?.[index]).toBe(point.units);
        // The quantile of Student's t is right to three digits.
        const [half, wanted] = [columns.half?.[index] ?? NaN, Number(point.half ?? NaN)];
        expect(interval === 'none' || Math.abs(half / wanted - 1) < 1e-3).toBe(true);
      });
    });
  });

  it('leaves rows of which only the sums are kept out of a selection, and takes them otherwise', () => {
    const whole = { ...rowOf(1, 1, [1, 2]), shape: [1, 2, 1] };
    const reduced = { ...rowOf(2, 1, []), shape: [1, 2, 1], reduced: true as const };
    remember(reduced.values, momentsOf(Float32Array.from([5, 7])));
    expect(Array.from(trend([whole, reduced], 'mean').value)).toEqual([1.5, 6]);
    const selection = { axes: ['position', 'feature'], positions: '1', vector: 0, interval: 'none' as const };
    expect(Array.from(trend([whole, reduced], 'mean', selection).value)).toEqual([2]);
  });

  it('is ordered by step and then layer also when steps lie far apart', () => {
    const columns = trend(
      [rowOf(1e12, 2, [1]), rowOf(5, 900_000, [2]), rowOf(5, 1, [3]), rowOf(1e12, 2, [3])],
      'mean'
    );
    expect(Array.from(columns.step)).toEqual([5, 5, 1e12]);
    expect(Array.from(columns.layer)).toEqual([1, 900_000, 2]);
    expect(Array.from(columns.value)).toEqual([3, 2, 2]);
  });

  it('splits into one series for each layer', () => {
    const columns = trend([rowOf(2, 7, [Number.NaN, 4]), rowOf(1, 7, [1]), rowOf(1, 3, [5])], 'max');
    expect(byLayer(columns)).toEqual([
      { layer: 3, steps: floats(1), values: floats(5), nonFinite: floats(0), starts: [] },
      { layer: 7, steps: floats(1, 2), values: floats(1, 4), nonFinite: floats(0, 1), starts: [] }
    ]);
  });

  it('refuses a statistic that there is not', () => {
    expect(() => trend([], 'mode' as Statistic)).toThrow(AggregateError);
  });
});

/** @jest-environment ./jest.environment.node.js */
import FIXTURE from '#protocol/fixtures/histogram-edges.json';
import { binsOf, histogramsOf, quantileOf } from '../../aggregate';
import { MemoryRun, rowOf } from '../../store/__tests__/memory-run';
import { readView } from '../still';
import { BINS, histogramRow as row } from './histogram-row';

const FLAG = 'MLP1_mat_mul';

/** Numbers that look random, the same each time. */
function numbers(count: number, size = 1): number[] {
  let state = 7;
  return Array.from({ length: count }, () => {
    state = (state * 48271) % 2147483647;
    return size * Math.tan(3 * (state / 2147483647 - 0.5));
  });
}

it('bins begin where the contract says', () => {
  for (const { compressor, at, edges } of FIXTURE.cases) {
    expect(at.map(k => binsOf(compressor)?.edges[k])).toEqual(edges);
  }
  expect(binsOf("Tile(tiles=96, reduction='mean')")).toBeNull();
});

it('every quantile of the values lies within the error that is said of it', () => {
  const values = numbers(5000, 0.01);
  const data = histogramsOf([rowOf(row(1, values))])!;
  const sorted = [...values].sort((a, b) => a - b);
  for (const share of [0, 0.01, 0.25, 0.5, 0.77, 0.99, 1]) {
    const { value, error } = quantileOf(data.bins, data.steps[0]!, share);
    const truth = sorted[Math.max(1, Math.ceil(share * 5000)) - 1]!;
    expect(Math.abs(truth - value)).toBeLessThanOrEqual(error);
    expect(error).toBeLessThanOrEqual(Math.abs(value) / 3);
  }
});

it('counts of samples, tiles, layers and micro-batches add up to those of all values', () => {
  const parts = [numbers(300), numbers(200, 5), numbers(100, 0.1)];
  const rows = parts.map((values, layer) => rowOf(row(3, values, { layer, whole: null })));
  const both = Float32Array.from([...rows[0]!.values, ...rows[1]!.values]);
  const tiled = [rowOf({ ...rows[0], shape: [1, 2, 2 * BINS + 1], values: both }), rows[2]!];
  const [apart, together] = [
    histogramsOf(rows),
    histogramsOf([rowOf(row(3, parts.flat(), { whole: null }))])
  ];
  expect(apart?.steps).toEqual(together?.steps);
  expect(histogramsOf(tiled)?.steps).toEqual(together?.steps);
  expect(histogramsOf(tiled, '1')?.steps[0]?.total).toBe(200);
});

it.each(['map', 'ridgeline', 'quantiles'] as const)(
  'draws %s of each step and says its quantiles',
  async kind => {
    const run = new MemoryRun();
    for (const step of [1, 2, 4]) {
      run.add(row(step, numbers(400, step)));
    }
    const [still] = await readView(run, { view: 'distribution', flag: FLAG, kind });
    expect(still?.title).toContain('steps 1 to 4');
    expect(still?.summary).toMatch(
      /^MLP1 .* in the \S+ .*\. At step 4 half of the values lie between −\S+ ± \S+ and \S+ ± \S+, the median/
    );
    expect(still?.caption.join(' ')).toContain('counts in 257 logarithmic bins');
    expect(still?.recipe?.texts[kind === 'ridgeline' ? 'yTitle' : 'xTitle']).toBe('step');
  }
);

it('quantile lines lie in bands that hold the quantile of the values', async () => {
  const run = new MemoryRun();
  const values = numbers(999, 2);
  run.add(row(5, values));
  const [still] = await readView(run, { view: 'distribution', flag: FLAG, kind: 'quantiles' });
  const median = [...values].sort((a, b) => a - b)[499]!;
  const band = still?.recipe?.datasets['band']?.find(({ line }) => line === 2);
  expect(Number(band?.['low'])).toBeLessThanOrEqual(median);
  expect(Number(band?.['high'])).toBeGreaterThanOrEqual(median);
});

it('counts of all ranks add up where that is asked for, else those of one rank count', async () => {
  const run = new MemoryRun();
  const parts = [numbers(300), numbers(200, 5)];
  parts.forEach((values, rank) => run.add(row(3, values, { rank })));
  const whole = new MemoryRun();
  whole.add(row(3, parts.flat()));
  const read = async (of: MemoryRun, replicas: 'all' | 'lowest'): Promise<string> => {
    const [still] = await readView(of, { view: 'distribution', flag: FLAG, kind: 'quantiles', replicas });
    expect(still?.caption.join(' ').includes('Of 2 ranks, added up.')).toBe(of === run && replicas === 'all');
    return still?.summary ?? '';
  };
  expect(await read(run, 'all')).toBe(await read(whole, 'lowest'));
  expect(await read(run, 'lowest')).not.toBe(await read(whole, 'lowest'));
});

it('says what a tensor is traced as instead, and offers to trace a histogram', async () => {
  const run = new MemoryRun();
  run.add({ step: 1, layer: 0, shape: [1, 2, 1], values: Float32Array.of(1, 2) });
  const [still] = await readView(run, { view: 'distribution', flag: FLAG });
  expect(still?.caption[0]).toContain('does not say how its values are distributed');
});

it('rows of another compressor are left out and counted', async () => {
  const run = new MemoryRun();
  run.add({ step: 1, layer: 0, shape: [1, 2, 1], values: Float32Array.of(1, 2) });
  run.add(row(2, numbers(50)));
  const [still] = await readView(run, { view: 'distribution', flag: FLAG });
  expect(still?.caption.join(' ')).toContain('Rows that another compressor made are left out: 1.');
});

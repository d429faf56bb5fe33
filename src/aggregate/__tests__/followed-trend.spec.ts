/** @jest-environment ./jest.environment.node.js */
import { readTrend } from '..';
import { MemoryRun } from '../../store/__tests__/memory-run';
import type { TrendRequest } from '../../protocol/requests.generated';

const tile = (tiles: number): string => `Tile(tiles=${tiles}, reduction='mean')`;
const QUERY: TrendRequest = { flag: 'MLP1_mat_mul', statistic: 'max', points: 4000 };
const kept = (value: number, step: number, layer = 0, more = {}): Parameters<MemoryRun['add']>[0] => ({
  ...{ step, layer, shape: [1, 1, 2], values: Float32Array.of(-1, value), ...more }
});

describe('the trend of a run that goes on', () => {
  it('is what a reader sees who comes new, whatever came meanwhile', async () => {
    const run = new MemoryRun();
    const anew = async (): Promise<unknown> => {
      const other = new MemoryRun();
      other.add(...run.rows);
      return shown(await readTrend(other, QUERY));
    };
    const shown = ({ lines, total, compressors }: Awaited<ReturnType<typeof readTrend>>): unknown => [
      lines.map(({ layer, steps, values, starts }) => [layer, [...steps], [...values], starts]),
      total,
      compressors
    ];
    for (let step = 1; step <= 700; step += 1) {
      if (step > 300 && step < 340) {
        // Nothing was traced.
        continue;
      }
      const compressor = tile(step < 450 ? 96 : 48);
      run.add(kept(Math.sin(step), step, 0, { compressor }));
      if (step % 90 === 0) {
        run.add(kept(step, step, 1, { compressor }));
      }
      if (step === 620) {
        // A second micro-batch, and rows of a step long past.
        run.add(kept(9, 620, 0, { microBatch: 1, compressor }), kept(77, 320, 0, { compressor }));
        run.changed.emit({ kind: 'rows', stream: 'tensors', firstStep: 320, lastStep: 620 });
      }
      if (step % 23 === 0 || (step > 617 && step < 640)) {
        expect(shown(await readTrend(run, QUERY))).toEqual(await anew());
      }
    }
  });

  it('asks for the newest steps only, and once in a while for all', async () => {
    const run = new MemoryRun();
    for (let step = 1; step <= 500; step += 1) {
      run.add(kept(step, step));
    }
    await readTrend(run, QUERY);
    const whole = run.asked.length;
    for (let step = 501; step <= 750; step += 1) {
      run.add(kept(step, step));
      const { lines, total } = await readTrend(run, QUERY);
      expect([lines[0]?.steps.length, total]).toEqual([step, step]);
    }
    const asked = run.asked.slice(whole);
    expect(asked.filter(({ steps }) => steps === undefined).length).toBeLessThan(4);
  });

  it('keeps every extreme where points are left out', async () => {
    const run = new MemoryRun();
    for (let step = 1; step <= 500; step += 1) {
      run.add(kept(step === 233 || step === 480 ? 1e6 + step : Math.cos(step), step));
      const { lines } = await readTrend(run, { ...QUERY, points: 40 });
      const values = [...(lines[0]?.values ?? [])];
      expect(lines[0]?.steps[lines[0].steps.length - 1]).toBe(step);
      expect(values.includes(1e6 + 233)).toBe(step >= 233);
      expect(values.includes(1e6 + 480)).toBe(step >= 480);
    }
  });

  it('has no number, not 0, of a layer of which fewer values are finite than not', async () => {
    const run = new MemoryRun();
    run.add(kept(3, 1), { step: 2, layer: 0, shape: [1, 1, 3], values: Float32Array.of(NaN, 0, NaN) });
    const { lines } = await readTrend(run, { ...QUERY, statistic: 'kept_rms' });
    expect([...(lines[0]?.values ?? [])]).toEqual([Math.sqrt(5), NaN]);
    const counts = await readTrend(run, { ...QUERY, statistic: 'nonfinite' });
    expect([...(counts.lines[0]?.values ?? [])]).toEqual([0, 2]);
  });
});

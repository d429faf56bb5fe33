/** @jest-environment ./jest.environment.node.js */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { decimate, gapStarts, indexAt, readScalars, readTrend, thinLine } from '..';
import { MemoryRun } from '../../store/__tests__/memory-run';

const read = <T>(name: string): T =>
  JSON.parse(readFileSync(join(__dirname, '../../../protocol/fixtures/lines', `${name}.json`), 'utf8')) as T;
const { gaps } = read<{ gaps: { name: string; steps: number[]; starts: number[] }[] }>('gaps');
const { places } = read<{ places: { steps: number[]; step: number; place: number }[] }>('places');

describe('a line', () => {
  it.each(gaps.map((each): [string, (typeof gaps)[number]] => [each.name, each]))(
    'begins anew where steps are missing: %s',
    (_, { steps, starts }) => expect(gapStarts(steps)).toEqual(starts)
  );

  it.each(places)('is read at $step of $steps', ({ steps, step, place }) => {
    expect(indexAt(steps, step)).toBe(place);
  });

  it('keeps both ends of every stretch when it is thinned, and its extremes', () => {
    const x = Float64Array.from({ length: 4000 }, (_, at) => (at < 2000 ? at : at + 3000));
    const y = x.map(at => Math.sin(at) + (at === 777 ? 9 : 0));
    const { kept, starts } = thinLine(x, y, [2000], 40);
    const steps = Array.from(kept, at => x[at]);
    expect(steps).toEqual(expect.arrayContaining([0, 777, 1999, 5000, 6999]));
    expect(starts.map(at => steps[at])).toEqual([5000]);
    expect(kept.length).toBeLessThan(decimate(x, y, 40).kept.length + 3);
  });
});

describe('lines that a run is asked for', () => {
  it('break where steps are missing, and where the compressor or the samples changed', async () => {
    const run = new MemoryRun();
    const tile = (tiles: number): string => `Tile(tiles=${tiles}, reduction='mean')`;
    for (const step of [1, 2, 3, 50, 51, 52, 53, 54]) {
      run.add({ step, compressor: tile(step < 52 ? 96 : 48), shape: [step < 54 ? 1 : 2, 3, 2] });
    }
    const { lines, compressors, total } = await readTrend(run, { flag: 'MLP1_mat_mul', statistic: 'rms' });
    expect(lines[0]?.starts.map(at => lines[0]?.steps[at])).toEqual([50, 52, 54]);
    expect([compressors, total]).toEqual([[tile(96), tile(48)], 8]);
  });

  it('keep the extremes of as many points as are wanted', async () => {
    const run = new MemoryRun();
    for (let step = 1; step <= 1000; step += 1) {
      run.numbers.push({ step, name: 'loss', value: step === 550 ? 99 : step / 1000 });
      if (step % 50 === 0) {
        run.numbers.push({ step, name: 'eval', value: step });
      }
    }
    run.units = { loss: 'nats', eval: 'nats' };
    const { lines } = await readScalars(run, { names: ['loss', 'eval', 'gone'], points: 40 });
    expect(lines.map(({ name, total }) => [name, total])).toEqual([
      ['loss', 1000],
      ['eval', 20]
    ]);
    expect(lines[0]?.steps.length).toBeLessThan(60);
    expect(lines[0]?.values).toContain(99);
    const at551 = await readScalars(run, { names: ['loss', 'eval'], steps: [551, 551], points: 40 });
    expect(at551.lines.map(({ name, values }) => [name, Array.from(values)])).toEqual([['loss', [0.551]]]);
  });
});

/** @jest-environment ./jest.environment.node.js */
import type { ViewOptions } from '../../protocol/views.generated';
import { MemoryRun } from '../../store/__tests__/memory-run';
import type { IMark } from '../shared/content';
import type { IViewModel } from '../shared/definition';
import { brokenPoints, type ILine } from '../kits/lines/line';
import { readRunLines, smoothLines } from '../kits/lines/shape-lines';
import { loadModel } from './model';

const at = (x: number): IMark => ({ facet: null, x: [x, x], y: null });

/** What a view says of a step once all that it asks for has come. */
async function told(model: IViewModel, step: number, mark = at(step)): Promise<string[]> {
  model.tipOf(mark);
  await new Promise(resolve => setImmediate(resolve));
  const tip = model.tipOf(mark);
  return [tip?.heading ?? '', ...(tip?.lines ?? []).map(({ name, value }) => `${name}: ${value}`)];
}

/** A loss at every one of 20,000 steps, the held-out loss at every 50th. */
function longRun(): MemoryRun {
  const run = new MemoryRun();
  run.connection = { kind: 'recorded' };
  for (let step = 1; step <= 20_000; step += 1) {
    run.numbers.push({ step, name: 'loss', value: lossAt(step) });
    if (step % 50 === 0) {
      run.numbers.push({ step, name: 'held_out_loss', value: 1 + step });
    }
  }
  run.units = { loss: 'nats', held_out_loss: 'nats' };
  return run;
}

const lossAt = (step: number): number => (step === 7777 ? 99 : 2 + Math.sin(step) / 4);

describe('what a thinned line says of a step', () => {
  const SCALARS: ViewOptions = { view: 'scalars' };

  it('is the value of that very step, or when it was measured last', async () => {
    const { model, loaded } = await loadModel(longRun(), SCALARS);
    const rows = 'content' in loaded ? (loaded.content.recipe?.datasets['rows'] ?? []) : [];
    expect(rows.length).toBeLessThan(8000);
    const drawn = new Set(rows.map(row => row['x']));
    const hidden = Array.from({ length: 400 }, (_, each) => 5001 + each).filter(step => !drawn.has(step));
    expect(hidden.length).toBeGreaterThan(100);
    for (const step of hidden.slice(0, 20)) {
      const last = step - (step % 50);
      const held = step === last ? `${1 + last}` : `measured last at step ${last}: ${1 + last}`;
      expect((await told(model, step)).map(plain)).toEqual([
        `step ${step}`,
        `loss: ${lossAt(step)}`,
        `held_out_loss: ${held}`
      ]);
    }
  });

  it('is asked for once, and never told with the number of a neighbour meanwhile', async () => {
    const { model } = await loadModel(longRun(), SCALARS);
    const values = model.tipOf(at(5013))?.lines.map(({ value }) => value) ?? [];
    expect(values.every(value => value === '…' || value.startsWith('measured last'))).toBe(true);
  });

  it('does not lose a spike of one step', async () => {
    const { loaded } = await loadModel(longRun(), SCALARS);
    const rows = 'content' in loaded ? (loaded.content.recipe?.datasets['rows'] ?? []) : [];
    expect(rows).toContainEqual(expect.objectContaining({ x: 7777, value: 99 }));
  });

  it('stays with the step of the keyboard’s cursor when lines are thinned in another way', async () => {
    const run = longRun();
    const { model } = await loadModel(run, SCALARS);
    model.move('ArrowLeft');
    model.move('PageUp');
    const before = model.move('PageUp');
    for (let step = 20_001; step < 20_400; step += 1) {
      run.numbers.push({ step, name: 'loss', value: 2 });
    }
    run.changed.emit({ kind: 'rows', stream: 'scalars', firstStep: 20_001, lastStep: 20_399 });
    model.concerns({ kind: 'rows', stream: 'scalars', firstStep: 20_001, lastStep: 20_399 });
    await model.load(new AbortController().signal);
    expect(model.move('copy')?.mark.x).toEqual(before?.mark.x);
  });
});

describe('lines', () => {
  const list = (...values: number[]): Float64Array => Float64Array.from(values);
  const line = (step: number[], value: number[], more: Partial<ILine> = {}): ILine => ({
    key: 'a',
    name: 'a',
    label: 'a',
    run: 0,
    layer: null,
    step: list(...step),
    x: list(...step),
    value: list(...value),
    nonFinite: new Float64Array(step.length),
    starts: [],
    isThin: false,
    ...more
  });

  it('break off where they begin anew, and nowhere else', () => {
    const { x, value } = brokenPoints(line([1, 2, 9, 10], [1, 2, 3, 4], { starts: [9] }));
    expect([[...x], [...value]]).toEqual([
      [1, 2, 9, 9, 10],
      [1, 2, NaN, 3, 4]
    ]);
    const whole = line([1, 2], [1, 2]);
    expect(brokenPoints(whole)).toBe(whole);
  });

  it('are smoothed over every point, before steps are chosen and points left out, with the numbers beside', async () => {
    const whole = line([1, 2, 3, 4], [8, 6, 4, 2]);
    expect(smoothLines([whole], 0)).toEqual([whole]);
    const { lines, readSteps } = await readRunLines(1, async () => [whole], 'overlay', {
      smoothing: 2,
      steps: [2, 4],
      points: 100
    });
    expect(lines.map(each => [each.isFaint ?? false, [...each.value]])).toEqual([
      [true, [6, 4, 2]],
      [false, [7, 5, 3]]
    ]);
    expect((await readSteps(0, [3, 3])).map(each => [...each.value])).toEqual([[4], [5]]);
  });
});

describe('a trend', () => {
  const TREND: ViewOptions = { view: 'trend', flag: 'MLP1_mat_mul' };
  const values = (value: number): Float32Array => new Float32Array(6).fill(value);

  it('is drawn with a gap where steps are missing and where the compressor changed', async () => {
    const run = new MemoryRun();
    const tile = (tiles: number): string => `Tile(tiles=${tiles}, reduction='mean')`;
    for (const step of [1, 2, 3, 230, 231, 232, 233]) {
      run.add({ step, values: values(step), compressor: tile(step < 232 ? 96 : 48) });
    }
    const { loaded } = await loadModel(run, TREND);
    const rows = 'content' in loaded ? (loaded.content.recipe?.datasets['rows'] ?? []) : [];
    expect(rows.map(row => [row['x'], row['value']])).toEqual([
      [1, 1],
      [2, 2],
      [3, 3],
      [230, null],
      [230, 230],
      [231, 231],
      [232, null],
      [232, 232],
      [233, 233]
    ]);
  });

  it('is of the whole tensors where they were measured, and says so where they were not', async () => {
    const run = new MemoryRun();
    // Four values whose tiles' means are 0: 3, -3, 1, -1.
    const whole = { count: 4, mean: 0, m2: 20, m3: 0, m4: 164, min: -3, max: 3 };
    run.add({ step: 1, values: values(0), whole }, { step: 2, values: values(0), whole });
    const read = async (options: Partial<ViewOptions>): Promise<[unknown, string, string]> => {
      const { loaded } = await loadModel(run, { ...TREND, ...options } as ViewOptions);
      const { recipe, caption, title } =
        'content' in loaded ? loaded.content : { recipe: null, caption: [loaded.state.sentence], title: '' };
      return [recipe?.datasets['rows']?.[0]?.['value'], caption.join(' '), title];
    };
    expect((await read({ statistic: 'rms' }))[0]).toBeCloseTo(Math.sqrt(5), 12);
    expect((await read({ statistic: 'kurtosis' }))[0]).toBeCloseTo(164 / 4 / 25, 12);
    expect((await read({ statistic: 'kept_rms' }))[0]).toBe(0);
    expect((await read({ statistic: 'rms' }))[1]).toContain('all finite values of the whole tensor');
    run.add({ step: 3, values: values(2) });
    const [, caption] = await read({ statistic: 'rms' });
    expect(caption).toContain('Over the finite values that the compressor kept');
    expect(caption).toContain('Statistics of the whole tensors were not recorded.');
    expect((await read({ statistic: 'kurtosis' }))[1]).toContain('kurtosis of whole tensors is not known');
  });
});

describe('runs that are compared', () => {
  const OPTIONS = { view: 'scalars', runs: ['r2'] } as const;
  const pair = (): [MemoryRun, MemoryRun] => {
    const [one, two] = [new MemoryRun(), new MemoryRun(undefined, 'r2')];
    two.name = 'other';
    one.units = two.units = { loss: 'nats', tokens: '' };
    for (const step of [1, 2, 3, 4]) {
      one.numbers.push({ step, name: 'loss', value: step }, { step, name: 'tokens', value: 100 * step });
      two.numbers.push({ step, name: 'loss', value: 3 * step }, { step, name: 'tokens', value: 200 * step });
    }
    return [one, two];
  };
  const linesOf = async (options: Partial<ViewOptions>): Promise<[string, unknown[][]]> => {
    const [one, two] = pair();
    const { loaded } = await loadModel(one, { ...OPTIONS, ...options } as ViewOptions, undefined, [one, two]);
    const content = 'content' in loaded ? loaded.content : null;
    const rows = content?.recipe?.datasets['rows'] ?? [];
    return [content?.title ?? '', rows.map(({ name, x, value }) => [name, x, value])];
  };

  it('lie over one another, or are minus or over this one', async () => {
    expect((await linesOf({}))[1]).toHaveLength(8);
    const [title, difference] = await linesOf({ compare: 'difference' });
    expect(title).toContain('Difference, other minus this run');
    expect(difference.map(([, , value]) => value)).toEqual([2, 4, 6, 8]);
    expect((await linesOf({ compare: 'ratio' }))[1].map(([, , value]) => value)).toEqual([3, 3, 3, 3]);
  });

  it('share an axis and have a colour each where one of them tells no unit', async () => {
    const pairOf = (units: MemoryRun['units']): MemoryRun[] => {
      const [one, two] = pair();
      two.units = units;
      return [one, two];
    };
    for (const units of [{}, { loss: '' }, { loss: 'nats' }] as MemoryRun['units'][]) {
      const [one, two] = pairOf(units);
      const runs = [one as MemoryRun, two as MemoryRun];
      const options: ViewOptions = { view: 'scalars', runs: ['r2'], names: ['loss'] };
      const { loaded } = await loadModel(runs[0] as MemoryRun, options, undefined, runs);
      const recipe = 'content' in loaded ? loaded.content.recipe : null;
      const rows = recipe?.datasets['rows'] ?? [];
      expect(new Set(rows.map(row => row['panel']))).toEqual(new Set([0]));
      expect(recipe?.texts['yTitle']).toBe('nats');
      expect(new Set(rows.map(row => row['color'])).size).toBe(2);
    }
  });

  it('are aligned by tokens, which scalars say', async () => {
    const [, rows] = await linesOf({ align: 'tokens' });
    expect(rows.map(([, x]) => x)).toEqual([100, 200, 300, 400, 200, 400, 600, 800]);
    const [, ratio] = await linesOf({ align: 'tokens', compare: 'ratio' });
    // The other run at 200 tokens is its step 1, where this run is at its step 2.
    expect(ratio.slice(0, 2)).toEqual([
      ['other · loss', 200, 1.5],
      ['other · loss', 400, 1.5]
    ]);
  });
});

const plain = (text: string): string => text.replace(/[\u2009\u202f]/g, '');

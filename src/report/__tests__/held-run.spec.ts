/** @jest-environment ./jest.environment.node.js */

import type { IQuestion } from '../../client/rest';
import { momentsOf } from '../../store/row-moments';
import type { ITensorQuery } from '../../store/tensor-data';
import { Recorder } from '../recorder';
import { answering } from '../../client/__tests__/answering';
import { detailOf, fakeReader, opened, rowOf } from './fake-reader';

const FLAG = 'MLP1_mat_mul';
const LAYERS: ITensorQuery = { flag: FLAG, phase: 'train', pass: 'forward', rank: 'lowest', layers: [1, 2] };
const ROWS = [1, 2, 3, 4, 5].flatMap(step =>
  [1, 2, 3].map(layer =>
    rowOf({
      step,
      layer,
      compressor: "Projection(vectors='/home/u/x.npy')",
      compressionError: step === 2 ? 0.25 : NaN,
      values: Float32Array.from([0.123456, 1, 10, 11, 20, 21], value => value * layer + step)
    })
  )
);

function record(rows = ROWS): Recorder {
  const recorder = Recorder.of(
    'r1',
    detailOf(),
    fakeReader(rows, [
      [1, 'loss', 5],
      [2, 'loss', NaN]
    ]),
    0
  );
  recorder.begin(0, false);
  return recorder;
}

it('marks in a live view of a report what happened to the run', async () => {
  const recorder = Recorder.of('r1', detailOf(), fakeReader(ROWS, [], undefined, ['{"flags":{}}']), 0);
  recorder.begin(0, false);
  const happened = await recorder.events();
  expect(happened).toMatchObject([{ kind: 'settings', first: 1, last: 1 }]);
  expect(await (await opened(recorder)).events()).toEqual(happened);
});

/** How many of something there are in a stretch of steps, of which a file holds at most 10. */
const HOW_MANY: IQuestion<{ readonly of: string; readonly finely?: boolean }, readonly number[]> = {
  name: 'how-many',
  inEngine: true,
  read: answer => answer as readonly number[],
  held: {
    asked: ({ of }) => ({ of }),
    cut: answer => answer.slice(0, 10),
    key: ({ of }) => of,
    parse: text => JSON.parse(text, (_, value: unknown) => value ?? NaN) as readonly number[]
  }
};

it('holds what instruments asked of the recording, as their questions say, and nothing else', async () => {
  const asked: object[] = [];
  const asker = answering(HOW_MANY, request => {
    asked.push(request);
    return Promise.resolve([NaN, ...Array.from({ length: 20 }, (_, at) => at)]);
  });
  const recorder = Recorder.of('r1', detailOf(), { ...fakeReader(ROWS), asker }, 0);
  const drawn = await recorder.asker(HOW_MANY)?.({ of: 'sheep', finely: true });
  expect(asked).toEqual([{ of: 'sheep' }]);
  expect(drawn).toEqual([NaN, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
  const run = await opened(recorder);
  expect(await run.asker(HOW_MANY)?.({ of: 'sheep', finely: true })).toEqual(drawn);
  await expect(run.asker(HOW_MANY)?.({ of: 'goats' })).rejects.toThrow('This file holds what its views drew');
  const { held: _, ...unheld } = HOW_MANY;
  expect(recorder.asker(unheld)).toBeUndefined();
  expect(run.asker(unheld)).toBeUndefined();
  expect(Recorder.of('r1', detailOf(), fakeReader(ROWS), 0).asker(HOW_MANY)).toBeUndefined();
});

describe('the rows that a report holds', () => {
  it('are those that its views asked for, with three digits', async () => {
    const recorder = record();
    await recorder.steps(FLAG, 'train', { layers: [1, 2], rank: 'lowest' });
    await recorder.tensors({ ...LAYERS, steps: [3, 3] });
    const run = await opened(recorder);
    expect(await run.steps(FLAG, 'train', { layers: [1, 2], rank: 'lowest' })).toEqual([3]);
    const { rows } = await run.tensors({ ...LAYERS, steps: [3, 3] });
    expect(rows.map(row => [row.step, row.layer])).toEqual([
      [3, 1],
      [3, 2]
    ]);
    expect([...(rows[0]?.values ?? [])]).toEqual([3.12, 4, 13, 14, 23, 24].map(Math.fround));
    expect(rows[0]?.compressor).toBe("Projection(vectors='…/x.npy')");
  });

  it('keep what is known of the whole tensors, and that nothing is', async () => {
    const whole = { count: 24576, mean: 0.1, m2: 1.5, m3: -2.25, m4: 1e300, min: -3, max: 7.75 };
    const recorder = record([rowOf({ step: 5, layer: 1, whole }), rowOf({ step: 5, layer: 2 })]);
    await recorder.tensors({ ...LAYERS, steps: [5, 5] });
    const { rows } = await (await opened(recorder)).tensors({ ...LAYERS, steps: [5, 5] });
    expect(rows.map(row => row.whole)).toEqual([whole, null]);
  });

  it('keep what is not finite, and three digits over any range', async () => {
    const values = [NaN, Infinity, -Infinity, 0, 1.2345e-30, 9.87654e30];
    const recorder = record([
      rowOf({ step: 5, layer: 1, values: Float32Array.from(values), nanCount: 1, infCount: 2 })
    ]);
    await recorder.tensors({ ...LAYERS, layers: [1], steps: [5, 5] });
    const { rows } = await (await opened(recorder)).tensors({ ...LAYERS, layers: [1], steps: [5, 5] });
    const three = [NaN, Infinity, -Infinity, 0, 1.23e-30, 9.88e30];
    expect([...(rows[0]?.values ?? [])]).toEqual(three.map(Math.fround));
    expect(rows[0]).toMatchObject({ nanCount: 1, infCount: 2, shape: [1, 3, 2] });
  });

  it('are held at other steps of a slider, and only as many as are kept', async () => {
    const recorder = record();
    await recorder.steps(FLAG, 'train', { layers: [1, 2] });
    await recorder.tensors({ ...LAYERS, steps: [5, 5] });
    const { slide } = recorder;
    expect(slide).toMatchObject({ step: 5, steps: [1, 2, 3, 4, 5], bytes: 2 * 6 * 4 });
    if (slide === null) {
      throw new Error('There is a slider.');
    }
    await recorder.fetch(slide, [1, 3, 5]);
    expect(await (await opened(recorder)).steps(FLAG, 'train', { layers: [1] })).toEqual([1, 3, 5]);
    recorder.keep(0, slide, new Set([1, 5]));
    expect(await (await opened(recorder)).steps(FLAG, 'train', { layers: [1] })).toEqual([1, 5]);
  });

  it.each([
    ['together where they lie close', [1, 3, 5], 1],
    ['one by one where the server would thin them out', [1, 3, 4], 2],
    ['one by one where far more lie between them', [1, 40], 1]
  ])('are asked for %s', async (_, wanted, every) => {
    const rows = Array.from({ length: 40 }, (__, at) => rowOf({ step: at + 1, layer: 1 }));
    const reader = fakeReader(rows);
    const asked: (readonly [number | undefined, number | undefined])[] = [];
    const recorder = Recorder.of(
      'r1',
      detailOf(),
      {
        ...reader,
        stream: async (id, stream, request) => {
          const [first, last] = request.steps ?? [];
          asked.push([first, last]);
          const answer = await reader.stream(id, stream, request);
          return first === last ? answer : { ...answer, sampledEvery: every };
        }
      },
      Infinity
    );
    recorder.begin(0, false);
    await recorder.steps(FLAG, 'train', { layers: [1] });
    await recorder.tensors({ ...LAYERS, layers: [1], steps: [2, 2] });
    const { slide } = recorder;
    asked.length = 0;
    await recorder.fetch(slide as never, wanted);
    const single = wanted.map(step => [step, step]);
    const whole = [[wanted[0], wanted.at(-1)]];
    expect(asked).toEqual(wanted.includes(5) ? whole : every > 1 ? [...whole, ...single] : single);
    expect(await (await opened(recorder)).steps(FLAG, 'train', { layers: [1] })).toEqual(
      [...wanted, 2].sort((a, b) => a - b)
    );
  });

  it('are sums where no view draws the values: of the values as they were', async () => {
    const recorder = record(ROWS.map(row => ({ ...row, compressor: 'Tile(tiles=2)' })));
    await recorder.tensors({ ...LAYERS, reduced: true });
    const run = await opened(recorder);
    const { rows } = await run.tensors({ ...LAYERS, reduced: true });
    expect(rows).toHaveLength(10);
    const [row] = rows;
    const [exact] = ROWS;
    expect(row).toMatchObject({ step: 1, layer: 1, reduced: true, shape: [1, 3, 2] });
    expect(row?.values).toHaveLength(0);
    const known = momentsOf(row?.values ?? new Float32Array());
    const expected = momentsOf(exact?.values ?? new Float32Array());
    expect(known.count).toBe(6);
    expect(Math.abs(known.sum / expected.sum - 1)).toBeLessThan(1e-6);
    expect(Math.abs(known.deviation / expected.deviation - 1)).toBeLessThan(1e-6);
  });

  it('know the newest measured error up to a step', async () => {
    const recorder = record();
    await recorder.tensors({ ...LAYERS, steps: [5, 5] });
    await recorder.tensors({ ...LAYERS, steps: [0, 5], measured: true });
    const run = await opened(recorder);
    const { rows } = await run.tensors({ ...LAYERS, steps: [0, 5], measured: true });
    expect(rows.map(row => [row.layer, row.step, row.compressionError])).toEqual([
      [1, 2, 0.25],
      [2, 2, 0.25]
    ]);
    expect((await run.tensors({ ...LAYERS, steps: [2, 2] })).rows).toEqual([]);
  });

  it('are not those of another layer, flag, pass or phase: the page says so', async () => {
    const recorder = record();
    await recorder.shapeOf(FLAG);
    await recorder.tensors({ ...LAYERS, steps: [5, 5] });
    const run = await opened(recorder);
    const says = /does not hold these rows/;
    await expect(run.tensors({ ...LAYERS, layers: [3], steps: [5, 5] })).rejects.toThrow(says);
    await expect(run.tensors({ ...LAYERS, pass: 'backward' })).rejects.toThrow(says);
    await expect(run.tensors({ ...LAYERS, phase: 'eval' })).rejects.toThrow(says);
    await expect(run.steps('QKV_mat_mul')).rejects.toThrow(says);
    await expect(run.shapeOf('QKV_mat_mul')).rejects.toThrow(says);
    await expect(run.scalars()).rejects.toThrow('holds no scalars');
    expect((await run.tensors({ ...LAYERS, layers: [2], steps: [5, 5] })).rows).toHaveLength(1);
    expect((await run.shapeOf(FLAG)).layers).toEqual([1, 2, 3]);
  });

  it('are scalars in full, by name', async () => {
    const recorder = record();
    await recorder.scalars(null);
    const run = await opened(recorder);
    const { step, value, name } = await run.scalars(['loss']);
    expect([[...step], [...value], name]).toEqual([
      [1, 2],
      [5, NaN],
      ['loss', 'loss']
    ]);
    expect((await run.scalars(['speed'])).name).toEqual([]);
  });

  it('are the extremes of long lines', async () => {
    const rows = Array.from({ length: 5000 }, (_, at) =>
      rowOf({ step: at, values: Float32Array.from({ length: 6 }, () => (at === 1234 ? 1e6 : Math.sin(at))) })
    );
    const recorder = Recorder.of('r1', detailOf(), fakeReader(rows), 0);
    recorder.begin(0, false);
    await recorder.tensors({ flag: FLAG, layers: [0], reduced: true });
    const thinned = recorder.thin('max', 1);
    expect(thinned?.of).toBe(5000);
    const run = await opened(recorder);
    const held = (await run.tensors({ flag: FLAG, layers: [0], reduced: true })).rows;
    expect(held.length).toBe(thinned?.kept);
    expect(held.length).toBeLessThan(800);
    expect(held.map(row => row.step)).toContain(1234);
  });

  it('break long lines only where steps were missing, and tell no neighbour’s value for a step that is not held', async () => {
    const rows = Array.from({ length: 5000 }, (_, at) =>
      rowOf({ step: at < 3000 ? at : at + 500, values: new Float32Array(6).fill(Math.sin(at)) })
    );
    const recorder = Recorder.of('r1', detailOf(), fakeReader(rows), 0);
    recorder.begin(0, false);
    const query = { flag: FLAG, layers: [0], statistic: 'kept_rms' } as const;
    await recorder.trend({ ...query, points: 2000 });
    recorder.thin('kept_rms', 1);
    const run = await opened(recorder);
    const { lines, total } = await run.trend({ ...query, points: 2000 });
    expect(lines[0]?.steps.length).toBeLessThan(800);
    expect(lines[0]?.starts.map(at => lines[0]?.steps[at])).toEqual([3500]);
    expect(total).toBe(5000);
    await expect(run.trend({ ...query, steps: [100, 120] })).rejects.toThrow('does not hold');
  });

  it('are every so many steps where a part of each tensor enters', async () => {
    const recorder = record();
    recorder.begin(0, true);
    await recorder.tensors({ ...LAYERS, reduced: true });
    recorder.thin('mean', 100);
    const run = await opened(recorder);
    const { rows, sampledEvery } = await run.tensors({ ...LAYERS, reduced: true });
    expect(sampledEvery).toBe(3);
    expect(rows.map(row => row.step)).toEqual([1, 1, 4, 4]);
    expect(rows.every(row => row.values.length === 6)).toBe(true);
  });
});

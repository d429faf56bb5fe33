/** @jest-environment node */

import { zlibSync } from 'fflate';
import type { IRunReader } from '../../client/run-reader';
import { pipelineAnswer } from '../../instruments/pipeline/client/__tests__/pipeline-answer';
import { pipelineOf } from '../../instruments/pipeline/client/pipeline-api';
import { timelineOf, type ITimelineRequest } from '../../instruments/timeline/client/timeline-api';
import { timelineAnswer } from '../../instruments/timeline/client/__tests__/timeline-answer';
import { readAlarms } from '../../instruments/monitor/store/alarms';
import { alarmBytes, alarmRow } from '../../store/__tests__/memory-run';
import { readToken, readTokens } from '../../instruments/generation/store/generations';
import { streamBytes } from '../../store/__tests__/written-run';
import { momentsOf } from '../../store/row-moments';
import type { ITensorQuery } from '../../store/source';
import { readPageRun, writePageRun } from '../page-data';
import { Recorder } from '../recorder';
import type { HeldRun } from '../held-run';
import { detailOf, fakeReader, rowOf } from './fake-reader';

const deflate = (bytes: Uint8Array): Uint8Array => zlibSync(bytes);
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

const opened = (recorder: Recorder): Promise<HeldRun> =>
  readPageRun(writePageRun(recorder, recorder.heldScalars, deflate));

it('marks in a live view of a report what happened to the run', async () => {
  const recorder = Recorder.of('r1', detailOf(), fakeReader(ROWS, [], undefined, ['{"flags":{}}']), 0);
  recorder.begin(0, false);
  const happened = await recorder.events();
  expect(happened).toMatchObject([{ kind: 'settings', first: 1, last: 1 }]);
  expect(await (await opened(recorder)).events()).toEqual(happened);
});

it('holds the alarms of the run, without paths of its machine', async () => {
  const reader = fakeReader(ROWS);
  const alarms = [
    alarmRow({ step: 4, value: NaN, sentence: 'See /home/u/rules.py.' }),
    alarmRow({ step: 2, severity: 'note' })
  ];
  const stream: IRunReader['stream'] = (run, name, query) =>
    name === 'alarms'
      ? Promise.resolve({ bytes: alarmBytes(alarms), sampledEvery: 1 })
      : reader.stream(run, name, query);
  const recorder = Recorder.of('r1', detailOf(), { ...reader, stream }, 0);
  await readAlarms(recorder);
  const held = await readAlarms(await opened(recorder));
  expect(held.map(({ step, value, sentence }) => [step, value, sentence])).toEqual([
    [2, 8, 'It is far above its usual level.'],
    [4, NaN, 'See …/rules.py.']
  ]);
  await expect(readAlarms(await opened(record()))).rejects.toThrow('This file holds what its views drew');
});

it('holds each row of a stream once, whichever parts of it were asked for', async () => {
  const reader = fakeReader(ROWS);
  const tokens = [1, 2].flatMap(generation =>
    ['a', '/srv/u/x'].map((text, position) => ({
      generation,
      position,
      text,
      candidate_ids: [7],
      candidate_texts: [text]
    }))
  );
  const ofGeneration = (where: object = {}) =>
    tokens.filter(({ generation }) => generation === (where as { generation?: number }).generation);
  const stream: IRunReader['stream'] = (run, name, query) =>
    name === 'tokens'
      ? Promise.resolve({ bytes: streamBytes('tokens', ofGeneration(query?.where)), sampledEvery: 1 })
      : reader.stream(run, name, query);
  const recorder = Recorder.of('r1', detailOf(), { ...reader, stream }, 0);
  const asked = await readTokens(recorder, 1, 0);
  expect(asked).toHaveLength(2);
  await readTokens(recorder, 1);
  await readTokens(recorder, 2);
  const held = await opened(recorder);
  expect((await held.table('tokens')).length).toBe(4);
  const [, last] = await readTokens(held, 2);
  expect(last).toMatchObject({ position: 1, text: '…/x', candidates: [] });
  // Any token of a report can be looked at, although nobody did while it was made.
  expect((await readToken(held, 2, 0, 1))?.candidates).toMatchObject([{ id: 7, text: '…/x' }]);
});

it('holds a timeline as it was drawn, coarse and whole', async () => {
  const asked: ITimelineRequest[] = [];
  const answer = timelineOf(timelineAnswer({ slow: { ranks: [0], steps: [3], values: [[null]] } }));
  const timeline: IRunReader['timeline'] = (_, request) => {
    asked.push(request);
    return Promise.resolve(answer);
  };
  const recorder = Recorder.of('r1', detailOf(), { ...fakeReader(ROWS), timeline }, 0);
  const request = { ranks: 'all', columns: 1600 };
  await recorder.timeline?.({ ...request, row: 3, window: [1, 2] });
  expect(asked).toEqual([{ ranks: 'all', columns: 400 }]);
  const run = await opened(recorder);
  // What is zoomed into is the same picture; other ranks are not here.
  expect(await run.timeline?.({ ...request, window: [1, 2] })).toEqual(answer);
  await expect(run.timeline?.({ ...request, ranks: '0-3' })).rejects.toThrow(
    'This file holds what its views drew'
  );
});

it('holds measured steps of a pipeline as they were answered, and not others', async () => {
  const answer = pipelineOf(pipelineAnswer());
  const pipeline: IRunReader['pipeline'] = () => Promise.resolve(answer);
  const recorder = Recorder.of('r1', detailOf(), { ...fakeReader(ROWS), pipeline }, 0);
  expect(await recorder.pipeline?.({ first: 3 })).toEqual(answer);
  const run = await opened(recorder);
  expect(await run.pipeline?.({ first: 3 })).toEqual(answer);
  await expect(run.pipeline?.({})).rejects.toThrow('This file holds what its views drew');
  expect(Recorder.of('r1', detailOf(), fakeReader(ROWS), 0).pipeline).toBeUndefined();
});

it('holds the newest measured steps where there are too many operations', async () => {
  const many = 15_000;
  const one = pipelineAnswer({ left: 0, steps: [3, 4, 5].map(step => ({ step, duration: 1 })) });
  const zeros = new Array<number>(3 * many).fill(0);
  const names = ['stage', 'rank', 'chunk', 'virtual_stage', 'micro_batch', 'begin_ms', 'end_ms'];
  const operations = {
    ...Object.fromEntries(names.map(name => [name, zeros])),
    step: zeros.map((_, at) => 3 + Math.floor(at / many)),
    kind: zeros.map(() => 'F')
  };
  const answer = pipelineOf({ ...one, operations });
  const pipeline: IRunReader['pipeline'] = () => Promise.resolve(answer);
  const recorder = Recorder.of('r1', detailOf(), { ...fakeReader(ROWS), pipeline }, 0);
  const drawn = await recorder.pipeline?.({});
  expect(drawn?.steps).toEqual([{ step: 5, duration: 1 }]);
  expect(drawn?.left).toBe(2);
  expect(drawn?.operations.step).toHaveLength(many);
  expect(await (await opened(recorder)).pipeline?.({})).toEqual(drawn);
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
        stream: async (id, stream, query = {}) => {
          asked.push([query.first, query.last]);
          const answer = await reader.stream(id, stream, query);
          return query.first === query.last ? answer : { ...answer, sampledEvery: every };
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

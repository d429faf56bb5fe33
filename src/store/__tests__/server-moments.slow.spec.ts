import {
  appendFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
  writeFileSync
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { RealHub, RealProducer, until } from '../../client/__tests__/real-hub';
import type { RunsApi } from '../../client';
import { encodeFrame } from '../../protocol';
import { RecordedRun, Runs, ServerMoments, type IRunSource, type SourceChange } from '..';
import { RealJupyter } from './real-jupyter';

jest.setTimeout(120_000);

const STEPS = 30;
const NAMES = ['decoder.layers.0.mlp.weight', 'decoder.layers.1.mlp.weight', 'decoder.layers.1.norm.weight'];
const root = mkdtempSync(join(tmpdir(), 'megalens-root-'));
const cache = mkdtempSync(join(tmpdir(), 'megalens-cache-'));
const tree = join(root, 'logs', 'run-a', 'training_stats', 'param_raw_moments_by_param');
const file = join(tree, 'rank0.jsonl');
let hub: RealHub;
let producer: RealProducer;
let jupyter: RealJupyter;
let api: RunsApi;
let runs: Runs;
let live: string;

/** A line of a raw-moment file: two values, of which the mean is the step. */
function line(step: number, names = NAMES): string {
  const values = Object.fromEntries(
    names.map((name, place) => {
      const [a, b] = [step - 1 - place, step + 1 + place];
      const sum = (power: number): number => a ** power + b ** power;
      return [name, { count: 2, sum_1: sum(1), sum_2: sum(2), sum_3: sum(3), sum_4: sum(4) }];
    })
  );
  const text = JSON.stringify({
    iter: step,
    consumed_train_samples: 8 * step,
    stat: 'param_raw_moments_by_param',
    values
  });
  return `${text}\n`;
}

function frame(step: number, names = NAMES): Uint8Array {
  const every = <T>(value: T): T[] => names.map(() => value);
  return encodeFrame(
    'moments',
    {
      step: every(step),
      samples: every(8 * step),
      stat: every('grad'),
      name: names,
      rank: every(0),
      stage: every(0),
      count: every(2),
      mean: every(step),
      m2: every(2),
      m3: every(0),
      m4: every(2),
      min: every(step - 1),
      max: every(step + 1),
      nan_count: every(0),
      inf_count: every(0),
      negative_inf_count: every(0),
      near_zero_count: every(0),
      rounding: every(0),
      gradient_stage: every('pre_clip'),
      loss_scale: every(1)
    },
    { step }
  );
}

beforeAll(async () => {
  process.env.MEGALENS_CACHE_DIR = cache;
  mkdirSync(tree, { recursive: true });
  writeFileSync(file, Array.from({ length: STEPS }, (_, at) => line(at + 1)).join(''));
  mkdirSync(join(root, 'logs', 'empty'));
  // Small enough that the hub gives up the first frames of statistics.
  hub = await RealHub.start('--record', join(root, 'megalens-runs'), '--backlog-bytes', '30000');
  producer = await RealProducer.join(hub);
  for (let step = 1; step <= STEPS; step += 1) {
    producer.send(frame(step));
  }
  jupyter = await RealJupyter.start(root, hub.folder);
  api = jupyter.api();
  runs = new Runs({
    api,
    openSocket: id => jupyter.opener(id),
    peer: { name: 'jest', version: '0.1.0' }
  });
  live = (await api.list()).runs.find(entry => entry.state === 'live')?.id ?? '';
  // The recorder writes what was sent some time later.
  let known: string | null = null;
  for (let last = 0; last < STEPS;) {
    const index = await api.moments.index(live, known, 5);
    if (index && 'stats' in index) {
      known = index.version;
      last = index.stats[0]?.last ?? 0;
    }
  }
});

afterAll(async () => {
  runs?.dispose();
  await jupyter?.stop();
  await producer?.close();
  await hub?.stop();
  [root, cache].forEach(folder => rmSync(folder, { recursive: true, force: true }));
});

/** The next news of moments' rows that reach a step: a live run may still be telling of earlier ones. */
function nextRows(source: IRunSource, reach = -Infinity): Promise<SourceChange> {
  return new Promise(resolve => {
    const heard = (_: IRunSource, change: SourceChange): void => {
      if (change.kind === 'rows' && change.stream === 'moments' && change.lastStep >= reach) {
        source.changed.disconnect(heard);
        resolve(change);
      }
    };
    source.changed.connect(heard);
  });
}

describe('a tree of raw-moment files', () => {
  it('is opened by its path and is a run of statistics only', async () => {
    const entry = (await api.openStatistics('logs')).runs[0];
    expect(entry).toMatchObject({ name: 'run-a', kind: 'statistics', state: 'recorded' });
    expect((await api.list()).runs.map(({ kind }) => kind)).toContain('statistics');
    const lease = await runs.acquire(entry?.id ?? '');
    const { source } = lease;
    expect(source).toBeInstanceOf(RecordedRun);
    expect(source.connection).toEqual({ kind: 'recorded' });
    expect(source.hello).toMatchObject({ flags: [], model: null });
    expect(await source.steps('HiddenStates')).toEqual([]);
    expect((await source.scalars()).step).toHaveLength(0);
    const index = await source.moments?.index();
    expect(index?.stats).toEqual([
      { stat: 'param', rows: STEPS * NAMES.length, first: 1, last: STEPS, steps: STEPS }
    ]);
    expect([...(index?.names ?? [])].sort()).toEqual([...NAMES].sort());
    expect(index?.samples).toBe(true);
    lease.dispose();
  });

  it('gives rows as columns of their own', async () => {
    const entry = (await api.openStatistics('logs')).runs[0];
    const moments = new ServerMoments(entry?.id ?? '', api.moments, { name: () => 'run-a', grows: false });
    const rows = await moments.rows({ stats: ['param', 'grad'], where: { layer: '1' }, steps: [3, 4] });
    expect([...(rows?.step ?? [])]).toEqual([3, 3, 4, 4]);
    expect([...(rows?.mean ?? [])]).toEqual([3, 3, 4, 4]);
    expect([...(rows?.samples ?? [])]).toEqual([24, 24, 32, 32]);
    expect(new Set(rows?.stat)).toEqual(new Set(['param']));
    const found = [...(rows?.nameId ?? [])].map(id => rows?.names[id]);
    expect(new Set(found)).toEqual(new Set(NAMES.slice(1)));
    expect([...(rows?.m2 ?? [])].sort((a, b) => a - b)).toEqual([8, 8, 18, 18]);
    expect(rows?.rounding[0]).toBe(2 ** -24);
    expect(rows?.min[0]).toBeNaN();
    const buffers = new Set([rows?.mean.buffer, rows?.m2.buffer, rows?.step.buffer]);
    expect(buffers.size).toBe(3);
    expect([...((await moments.rows({ stats: ['grad'] }))?.step ?? [])]).toEqual([]);
    moments.dispose();
  });

  it('answers null where there are more rows than are taken', async () => {
    const entry = (await api.openStatistics('logs')).runs[0];
    const options = { name: () => 'run-a', grows: false, limitRows: 10 };
    const moments = new ServerMoments(entry?.id ?? '', api.moments, options);
    expect(await moments.rows({ stats: ['param'] })).toBeNull();
    expect((await moments.rows({ stats: ['param'], steps: [1, 2] }))?.step).toHaveLength(6);
    moments.dispose();
  });

  it('has the server make groups, with their keys in order', async () => {
    const entry = (await api.openStatistics('logs')).runs[0];
    const moments = new ServerMoments(entry?.id ?? '', api.moments, { name: () => 'run-a', grows: false });
    const query = { stat: 'param', statistic: 'variance', by: ['layer', 'family'] } as const;
    const groups = await moments.groups({ ...query, steps: [5, 6] });
    expect(groups.keys).toEqual([
      [0, 'mlp'],
      [1, 'mlp'],
      [1, 'norm']
    ]);
    expect([...groups.group]).toEqual([0, 0, 1, 1, 2, 2]);
    expect([...groups.step]).toEqual([5, 6, 5, 6, 5, 6]);
    expect([...groups.value].map(value => Math.round(value * 1e6) / 1e6)).toEqual([1, 1, 4, 4, 9, 9]);
    expect([...groups.count]).toEqual([2, 2, 2, 2, 2, 2]);
    expect([groups.groupsTotal, groups.stepsTotal]).toEqual([3, 2]);
    expect(groups.error[0]).toBeGreaterThan(0);
    expect([...groups.nonFinite, ...groups.scaled]).toEqual(new Array(12).fill(0));
    const total = await moments.groups({ ...query, by: [], points: 4 });
    expect(total.keys).toEqual([[]]);
    moments.dispose();
  });

  it('says that there is more as soon as a line is appended', async () => {
    const entry = (await api.openStatistics('logs')).runs[0];
    const lease = await runs.acquire(entry?.id ?? '');
    const { source } = lease;
    await source.moments?.index();
    const change = nextRows(source);
    appendFileSync(file, line(STEPS + 1, [...NAMES, 'late.weight']));
    expect(await change).toEqual({
      kind: 'rows',
      stream: 'moments',
      firstStep: STEPS,
      lastStep: STEPS + 1
    });
    const index = await source.moments?.index();
    expect(index?.stats[0]?.last).toBe(STEPS + 1);
    expect(index?.names).toHaveLength(NAMES.length + 1);
    const rows = await source.moments?.rows({ stats: ['param'], steps: [STEPS + 1, STEPS + 1] });
    expect(rows?.step).toHaveLength(NAMES.length + 1);
    lease.dispose();
  });

  it('passes typed refusals on, in words', async () => {
    await expect(api.openStatistics('logs/empty')).rejects.toMatchObject({ status: 404, field: 'path' });
    await expect(api.openStatistics('../outside')).rejects.toMatchObject({ status: 403, field: 'path' });
    const gone = new ServerMoments('no-such-run', api.moments, { name: () => 'gone', grows: true });
    await expect(gone.index()).rejects.toMatchObject({ name: 'StoreError', code: 'gone' });
    const entry = (await api.openStatistics('logs')).runs[0];
    const moments = new ServerMoments(entry?.id ?? '', api.moments, { name: () => 'run-a', grows: false });
    const bad = { stat: 'param', statistic: 'l2', by: ['capture'], pattern: '(' } as const;
    await expect(moments.groups(bad)).rejects.toMatchObject({ name: 'StoreError', code: 'unavailable' });
    const abort = new AbortController();
    const asked = moments.groups({ stat: 'param', statistic: 'l2', by: [] }, abort.signal);
    abort.abort();
    await expect(asked).rejects.toMatchObject({ name: 'AbortError' });
    const late = moments.rows({ stats: ['param'] });
    moments.dispose();
    await expect(late).rejects.toMatchObject({ code: 'disposed' });
    await expect(moments.index()).rejects.toMatchObject({ code: 'disposed' });
  });
});

describe('a live run', () => {
  it('has what came before this page, from the recording, and what comes now, from the hub', async () => {
    const lease = await runs.acquire(live);
    const { source } = lease;
    await until(() => source.hello !== null, 'hello');
    // What the hub still has comes behind its hello.
    let index = await source.moments?.index();
    for (let news = nextRows(source); index?.stats[0]?.last !== STEPS; news = nextRows(source)) {
      index = await source.moments?.index();
      await (index?.stats[0]?.last === STEPS || news);
    }
    expect(index?.stats).toEqual([
      { stat: 'grad', rows: STEPS * NAMES.length, first: 1, last: STEPS, steps: STEPS }
    ]);
    const change = nextRows(source, STEPS + 1);
    producer.send(frame(STEPS + 1));
    expect(await change).toMatchObject({ lastStep: STEPS + 1 });
    const rows = await source.moments?.rows({ stats: ['grad'] });
    const steps = Array.from({ length: STEPS + 1 }, (_, at) => at + 1);
    expect([...(rows?.step ?? [])]).toEqual(steps.flatMap(step => NAMES.map(() => step)));
    expect([...(rows?.mean ?? [])]).toEqual([...(rows?.step ?? [])]);
    const groups = await source.moments?.groups({ stat: 'grad', statistic: 'rms', by: ['layer'] });
    expect(groups?.keys).toEqual([[0], [1]]);
    lease.dispose();
  });

  it('without a recording has what came here, and says that the server has nothing to answer from', async () => {
    const own = await RealHub.start();
    const past = await RealProducer.join(own);
    past.send(frame(1));
    // The server looks for hubs in one folder.
    readdirSync(own.folder)
      .filter(name => name.startsWith('hub-'))
      .forEach(name => renameSync(join(own.folder, name), join(hub.folder, name)));
    const entry = (await api.list()).runs.find(({ state, id }) => state === 'live' && id !== live);
    const lease = await runs.acquire(entry?.id ?? '');
    const { source } = lease;
    await nextRows(source);
    expect((await source.moments?.index())?.stats).toMatchObject([{ stat: 'grad', last: 1 }]);
    await expect(source.moments?.groups({ stat: 'grad', statistic: 'l2', by: [] })).rejects.toMatchObject({
      code: 'unavailable'
    });
    lease.dispose();
    await past.close();
    await own.stop();
  });
});

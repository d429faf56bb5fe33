/** @jest-environment ./jest.environment.node.js */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { RealHub, RealProducer, until } from '../../client/__tests__/real-hub';
import { ClientError, RunsApi } from '../../client';
import { LiveRun, RecordedRun, Runs, StoreError } from '..';
import { addEventSource } from '../stream-events';
import { FakeHub } from '../../client/__tests__/fake-hub';
import { RealJupyter } from './real-jupyter';

const STEPS = 20;
const folder = mkdtempSync(join(tmpdir(), 'megalens-root-'));
let hub: RealHub;
let producer: RealProducer;
let jupyter: RealJupyter;
let api: RunsApi;
let runs: Runs;
let recorded: string;
let live: string;

// One finished recording and one run that goes on, both listed by one Jupyter server.
beforeAll(async () => {
  const done = await RealHub.start('--record', join(folder, 'megalens-runs'), '--linger', '0');
  const past = await RealProducer.join(done);
  for (let step = 1; step <= STEPS; step += 1) {
    past.step(step);
  }
  past.say({ type: 'goodbye', reason: 'finished' });
  await done.ended;
  await past.close();
  await done.stop();
  hub = await RealHub.start();
  producer = await RealProducer.join(hub);
  producer.step(1);
  jupyter = await RealJupyter.start(folder, hub.folder);
  api = jupyter.api();
  runs = new Runs({
    api,
    openSocket: id => jupyter.opener(id),
    peer: { name: 'jest', version: '0.1.0' }
  });
  const entries = (await api.list()).runs;
  live = entries.find(entry => entry.state === 'live')?.id ?? '';
  recorded = entries.find(entry => entry.state === 'recorded')?.id ?? '';
});

afterAll(async () => {
  runs?.dispose();
  await jupyter?.stop();
  await producer?.close();
  await hub?.stop();
  rmSync(folder, { recursive: true, force: true });
});

describe('the runs of a Jupyter server', () => {
  it('lists live and recorded runs, newest first', async () => {
    const entries = (await api.list()).runs;
    expect(entries.map(entry => entry.state)).toEqual(['live', 'recorded']);
    expect(entries[1]).toMatchObject({
      id: recorded,
      name: 'gpt-demo',
      step: STEPS,
      folder: `megalens-runs/${recorded}`
    });
  });

  it('renames a run, and passes the typed refusal on', async () => {
    await api.describe(recorded, { name: 'better name', tags: ['x'] });
    expect((await api.list()).runs[1]).toMatchObject({ name: 'better name', tags: ['x'] });
    await api.describe(recorded, { name: 'gpt-demo' });
    await expect(api.describe('nothing', { name: 'x' })).rejects.toMatchObject({
      name: 'ClientError',
      code: 'refused',
      status: 404,
      serverCode: 'not-found'
    });
  });

  it('shares one source among all who look at a live run, and closes it with the last', async () => {
    const [one, two] = await Promise.all([runs.acquire(live), runs.acquire(live)]);
    expect(one.source).toBe(two.source);
    expect(one.source).toBeInstanceOf(LiveRun);
    await until(() => one.source.connection.kind === 'live', 'the relay is open');
    one.dispose();
    one.dispose();
    expect(two.source.isDisposed).toBe(false);
    producer.step(2);
    const steps = async (): Promise<readonly number[]> => two.source.steps('MLP1_mat_mul');
    let seen: readonly number[] = [];
    two.source.changed.connect(() => void steps().then(now => (seen = now)));
    producer.step(3);
    await until(() => seen.includes(3), 'step 3 through the relay');
    two.dispose();
    await until(() => two.source.isDisposed, 'the source is closed');
    const three = await runs.acquire(live);
    expect(three.source).not.toBe(two.source);
    three.dispose();
  });

  it('asks a hub for all that it keeps of a run which is not recorded, and for little of one that is', async () => {
    const joins: { backlog?: number }[] = [];
    for (const recording of [{}, { bytes: 4096 }]) {
      const entry = { id: 'a', name: 'a', state: 'live', started: 1, ended: null, step: 1, folder: null };
      const hub = new FakeHub();
      const own = new Runs({
        api: new RunsApi({
          baseUrl: '',
          fetch: async () => new Response(JSON.stringify({ ...entry, ...recording }))
        }),
        openSocket: () => () => hub,
        peer: { name: 'jest', version: '0.1.0' }
      });
      await own.acquire('a');
      hub.open();
      joins.push(hub.asked[0] as object);
      own.dispose();
    }
    expect(joins.map(({ backlog }) => backlog)).toEqual([undefined, 2 << 20]);
  });

  it('refuses a run that there is not', async () => {
    await expect(runs.acquire('nothing')).rejects.toMatchObject({ name: 'StoreError', code: 'gone' });
  });

  it('passes a missing login on', async () => {
    await expect(jupyter.api('wrong').list()).rejects.toMatchObject({ name: 'ClientError', status: 403 });
  });

  it('says when the server cannot be reached', async () => {
    const api = new RunsApi({ baseUrl: 'http://127.0.0.1:1/', fetch });
    await expect(api.list()).rejects.toMatchObject({ code: 'unreachable' });
  });

  it('refuses what is no answer of ours', async () => {
    const answer = (body: string): RunsApi =>
      new RunsApi({ baseUrl: '', fetch: async () => new Response(body) });
    await expect(answer('<html>').list()).rejects.toBeInstanceOf(ClientError);
    await expect(answer('{"runs":{"id":1}}').list()).rejects.toMatchObject({ code: 'bad-answer' });
    // One entry that cannot be read hides no other run; it is left out and named.
    const good = { id: 'a', name: 'a', state: 'live', started: 1, ended: null, step: 1, folder: null };
    expect(await answer(JSON.stringify({ runs: [{ id: 1 }, good] })).list()).toEqual({
      runs: [good],
      warnings: [expect.stringContaining('a run without an id')]
    });
    await expect(answer('{"hello":{},"status":{}}').get('x')).rejects.toMatchObject({ code: 'bad-answer' });
  });
});

describe('a recorded run', () => {
  it('answers queries with just the rows asked for, and remembers them', async () => {
    const lease = await runs.acquire(recorded);
    const { source } = lease;
    expect(source).toBeInstanceOf(RecordedRun);
    expect(source.connection).toEqual({ kind: 'recorded' });
    expect(source.hello?.model?.layers).toBe(4);
    expect(source.status?.state).toBe('finished');
    expect(await source.steps('MLP1_mat_mul')).toHaveLength(STEPS);
    expect(await source.steps('MLP1_mat_mul', 'eval')).toEqual([]);
    expect(await source.shapeOf('MLP1_mat_mul')).toEqual({
      parts: [''],
      layers: [1, 2],
      ranks: [0],
      passes: ['forward']
    });
    const query = { flag: 'MLP1_mat_mul', layers: [2], steps: [3, 4] as const };
    const found = await source.tensors(query);
    expect(found.rows.map(row => [row.step, row.layer, row.values[0]])).toEqual([
      [3, 2, -3],
      [4, 2, -4]
    ]);
    expect(found).toMatchObject({ evictedRows: 0, sampledEvery: 1 });
    expect(await source.tensors({ ...query })).toBe(found);
    const { step, value } = await source.scalars(['loss']);
    expect(step).toHaveLength(STEPS);
    expect(value[4]).toBe(1);
    lease.dispose();
  });

  it('refuses to be configured, stops when told, and refuses all after it was disposed of', async () => {
    const { source, dispose } = await runs.acquire(recorded);
    await expect(source.configure({ flags: {} })).rejects.toMatchObject({ code: 'recorded' });
    await expect(source.tensors({ flag: 'F' }, AbortSignal.abort())).rejects.toMatchObject({
      name: 'AbortError'
    });
    dispose();
    await until(() => source.isDisposed, 'the source is closed');
    await expect(source.steps('MLP1_mat_mul')).rejects.toBeInstanceOf(StoreError);
  });

  it('asks once what happened to it, and again only where that failed', async () => {
    const api = jupyter.api();
    const detail = await api.get(recorded);
    if (!('hello' in detail)) {
      throw new Error('not a recorded run');
    }
    addEventSource({ stream: 'alarms', load: () => Promise.resolve(() => []) });
    const asked = jest.spyOn(api, 'stream').mockRejectedValueOnce(new Error('cut'));
    const run = new RecordedRun(recorded, detail, api);
    await expect(run.events()).rejects.toThrow('cut');
    expect(await Promise.all([run.events(), run.events()])).toHaveLength(2);
    await run.events();
    expect(asked.mock.calls.map(([, stream]) => stream)).toEqual(['audit', 'audit', 'alarms']);
    run.dispose();
  });

  it('says how the server thinned steps out', async () => {
    const detail = await jupyter.api().get(recorded);
    if (!('hello' in detail)) {
      throw new Error('not a recorded run');
    }
    const run = new RecordedRun(recorded, detail, jupyter.api(), { limitBytes: 10_000 });
    const { rows, sampledEvery } = await run.tensors({ flag: 'MLP1_mat_mul', layers: [1] });
    expect(sampledEvery).toBeGreaterThan(1);
    expect(rows.length).toBeLessThan(STEPS);
    expect(rows.length).toBeGreaterThan(0);
    run.dispose();
  });

  it('answers with the columns that were asked for, whatever rows are chosen by', async () => {
    const { source, dispose } = await runs.acquire(recorded);
    const rows = await source.table('tensors', { where: { flag: 'MLP1_mat_mul' }, columns: ['layer'] });
    expect(Object.keys(rows.columns)).toEqual(['step', 'layer']);
    expect(rows.length).toBeGreaterThan(0);
    const other = await source.table('tensors', { where: { flag: 'nothing' }, columns: ['layer'] });
    expect(other.length).toBe(0);
    dispose();
  });

  it('gives its views one link, and forget what was chosen with the last of them', async () => {
    const [one, two] = await Promise.all([runs.acquire(recorded), runs.acquire(recorded)]);
    one.source.link?.choose(one, [2, 5]);
    expect(two.source.link?.filter?.steps).toEqual([2, 5]);
    one.dispose();
    expect(two.source.link?.filter?.steps).toEqual([2, 5]);
    two.dispose();
    const later = await runs.acquire(recorded);
    expect(later.source.link?.filter).toBeNull();
    later.dispose();
  });
});

describe('a live run that ends', () => {
  it('is told apart from a broken link by asking the server', async () => {
    const lease = await runs.acquire(live);
    await until(() => lease.source.connection.kind === 'live', 'the relay is open');
    await hub.stop('SIGKILL');
    await until(() => lease.source.connection.kind === 'closed', 'the end is noticed', 40_000);
    expect(lease.source.connection).toMatchObject({ reason: 'gone' });
    lease.dispose();
  });
});

import {
  RealHub,
  RealProducer,
  Road,
  announcement,
  lossFrame,
  normsFrame,
  until
} from '../../client/__tests__/real-hub';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { MomentsApi } from '../../client/run-reader';
import { Rest } from '../../client/rest';
import type { StreamRequest } from '../../protocol/requests.generated';
import {
  HEADER_BYTES,
  decodeFrame,
  decodeMessage,
  frameTable,
  readableStreams,
  STREAMS
} from '../../protocol';
import { LiveRun, RecordedRun, RowStore } from '..';

const peer = { name: 'jest', version: '0.1.0' };
const streams = readableStreams(announcement('announce-streams').streams);
const declared = streams.get('weight_norms');
if (declared === undefined) {
  throw new Error('the fixture declares weight_norms');
}
const fixture = (name: string) =>
  readFileSync(join(__dirname, `../../../protocol/fixtures/messages/${name}.json`), 'utf8');
const rowsAt = (step: number) => frameTable(decodeFrame(normsFrame(step)), streams);

/** The newest step of each change of the unknown stream, as a run tells of it. */
function stepsTold(run: LiveRun): number[] {
  const told: number[] = [];
  run.changed.connect((_, change) => {
    if (change.kind === 'rows' && change.stream === 'weight_norms') {
      told.push(change.lastStep);
    }
  });
  return told;
}

describe('a stream that this version does not know', () => {
  let hub: RealHub;
  const closers: (() => unknown)[] = [];

  beforeEach(async () => {
    hub = await RealHub.start('--name', 'gpt-demo');
  });

  afterEach(async () => {
    for (const close of closers.splice(0).reverse()) {
      await close();
    }
    await hub.stop();
  });

  async function joined(): Promise<RealProducer> {
    const producer = await RealProducer.join(hub, announcement('announce-streams'));
    closers.push(() => producer.close());
    return producer;
  }

  it('is kept, also over cut links, and given by name', async () => {
    const road = await Road.to(hub.port);
    closers.push(() => road.close());
    const run = new LiveRun({ openSocket: hub.opener(road.port), peer });
    closers.push(() => run.dispose());
    const told = stepsTold(run);
    const producer = await joined();
    await until(() => run.connection.kind === 'live', 'the run is live');
    for (let step = 1; step <= 20; step += 1) {
      producer.send(normsFrame(step));
      producer.send(lossFrame(step));
      if (step === 10) {
        road.cut();
        await until(() => run.connection.kind === 'reconnecting', 'the break is noticed');
      }
    }
    await until(() => told.includes(20), 'step 20');
    const all = Array.from({ length: 20 }, (_, index) => index + 1);
    const rows = await run.table('weight_norms', { where: { name: 'lm_head' } });
    expect([...(rows.columns.step ?? [])]).toEqual(all);
    expect(rows.columns.value?.[4]).toBe(Infinity);
    const some = await run.table('weight_norms', { steps: [19, 20] });
    expect([some.length, some.evictedRows, some.columns.name?.[0]]).toEqual([4, 0, 'embedding']);
    expect(run.hello?.streams?.weight_norms?.title).toBe('Weight norms');
    await until(() => run.status?.streams?.weight_norms?.rows === 40, 'the status tells of it');
    expect(run.missedFrames).toBe(0);
    await expect(run.table('nothing')).rejects.toMatchObject({ code: 'no-stream' });
    await expect(run.table('tensors')).rejects.toMatchObject({ code: 'no-stream' });
  });

  it('is there for a page that joins late', async () => {
    const producer = await joined();
    producer.send(normsFrame(1));
    producer.send(normsFrame(2));
    const run = new LiveRun({ openSocket: hub.opener(), peer });
    closers.push(() => run.dispose());
    const told = stepsTold(run);
    await until(() => run.status?.streams?.weight_norms?.rows === 4, 'the status tells of it');
    await until(() => told.includes(2), 'step 2');
    expect((await run.table('weight_norms')).length).toBe(4);
  });
});

describe('the store of its rows', () => {
  it('stays within its bound, gives up the oldest and counts them', () => {
    const store = new RowStore(declared);
    for (let step = 1; step <= 2000; step += 1) {
      store.append(rowsAt(step), false);
    }
    const { length, evictedRows, columns } = store.rows();
    expect(store.bytes).toBeLessThanOrEqual(declared.policy.page_bytes ?? 0);
    expect(length + evictedRows).toBe(4000);
    expect(columns.step?.[length - 1]).toBe(2000);
    expect(evictedRows).toBeGreaterThan(0);
  });

  it('leaves out what comes again, by identity', () => {
    const store = new RowStore(declared);
    [1, 2, 3].forEach(step => store.append(rowsAt(step), false));
    expect([2, 3, 4].map(step => store.append(rowsAt(step), true))).toEqual([null, null, [4, 4]]);
    expect([...(store.rows().columns.step ?? [])]).toEqual([1, 1, 2, 2, 3, 3, 4, 4]);
  });
});

describe('a recorded run', () => {
  it('asks its reader for the rows of a stream that only the recording declares', async () => {
    const hello = decodeMessage(fixture('hello-streams'), ['hello']);
    const status = decodeMessage(fixture('status-streams'), ['status']);
    const asked: unknown[] = [];
    const reader = {
      index: () => Promise.resolve([]),
      stream: (_: string, stream: string, { where, steps }: StreamRequest) => {
        asked.push([stream, where, steps]);
        return Promise.resolve({ bytes: normsFrame(5).slice(HEADER_BYTES), sampledEvery: 2 });
      },
      tensorLines: () => Promise.reject(new Error('nowhere')),
      scalarLines: () => Promise.reject(new Error('nowhere')),
      moments: new MomentsApi(
        new Rest({ baseUrl: 'http://nowhere/', fetch: () => Promise.reject(new Error('nowhere')) })
      )
    };
    const run = new RecordedRun('r1', { hello, status, truncated: [] }, reader);
    const where = { name: 'lm_head' };
    const rows = await run.table('weight_norms', { steps: [5, 5], where });
    expect(asked).toEqual([['weight_norms', where, [5, 5]]]);
    expect([rows.length, rows.sampledEvery, rows.columns.value?.[0]]).toEqual([1, 2, Infinity]);
    // Its columns are of a type of a later version.
    await expect(run.table('odd')).rejects.toMatchObject({ code: 'no-stream' });
    run.dispose();
  });
});

describe('a declaration', () => {
  const fields = declared.fields.map(field => ({ ...field }));
  it.each([
    ['a type of a later version', { ...declared, fields: [...fields, { name: 'z', type: 'complex64' }] }],
    ['no step', { ...declared, fields: fields.slice(1) }],
    ['an identity that is no column', { ...declared, policy: { keep: 'newest', identity: ['other'] } }],
    ['a column twice', { ...declared, fields: [...fields, ...fields] }]
  ])('with %s is left out, and nothing else is', (_, wrong) => {
    const readable = readableStreams({
      wrong: { ...wrong, fields: wrong.fields.map(field => ({ ...field })) },
      weight_norms: { ...declared, fields: [...fields] }
    });
    expect([...readable.keys()]).toEqual([...Object.keys(STREAMS), 'weight_norms']);
  });

  it('with a name that is no name is left out', () => {
    expect(readableStreams({ '../x': { ...declared, fields: [...fields] } }).size).toBe(
      Object.keys(STREAMS).length
    );
  });
});

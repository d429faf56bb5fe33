import { RealHub, RealProducer, Road, lossFrame, tensorFrame, until } from '../../client/__tests__/real-hub';
import { LiveRun, StoreError, type ILiveRunOptions, type SourceChange } from '..';

const peer = { name: 'jest', version: '0.1.0' };
const closers: (() => unknown)[] = [];
let hub: RealHub;

afterEach(async () => {
  for (const close of closers.splice(0).reverse()) {
    await close();
  }
});

async function startProducer(): Promise<RealProducer> {
  const producer = await RealProducer.join(hub);
  closers.push(() => producer.close());
  return producer;
}

function openRun(options: Partial<ILiveRunOptions> = {}): { run: LiveRun; changes: SourceChange[] } {
  const run = new LiveRun({ openSocket: hub.opener(), peer, ...options });
  const changes: SourceChange[] = [];
  run.changed.connect((_, change) => changes.push(change));
  closers.push(() => run.dispose());
  return { run, changes };
}

const rowChanges = (changes: SourceChange[]): Extract<SourceChange, { kind: 'rows' }>[] =>
  changes.filter((change): change is Extract<SourceChange, { kind: 'rows' }> => change.kind === 'rows');

describe('a live run', () => {
  // Each test has a hub of its own: what a late viewer is sent belongs to the whole life of a hub.
  beforeEach(async () => {
    hub = await RealHub.start('--name', 'gpt-demo');
  });

  afterEach(() => hub.stop());

  it('keeps what the hub sends and answers queries from it', async () => {
    const { run, changes } = openRun();
    const producer = await startProducer();
    for (let step = 1; step <= 10; step += 1) {
      producer.step(step);
    }
    await until(() => rowChanges(changes).some(change => change.lastStep === 10), 'step 10');
    await until(() => run.status?.step === 10, 'the status says step 10');
    expect(run.name).toBe('gpt-demo');
    expect(run.hello?.model?.layers).toBe(4);
    expect(run.connection.kind).toBe('live');
    expect(await run.steps('MLP1_mat_mul')).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    expect(await run.steps('MLP1_mat_mul', 'eval')).toEqual([]);
    expect(await run.shapeOf('MLP1_mat_mul')).toEqual({
      parts: [''],
      layers: [1, 2],
      ranks: [0],
      passes: ['forward']
    });
    const { rows, evictedRows, sampledEvery } = await run.tensors({
      flag: 'MLP1_mat_mul',
      layers: [2],
      steps: [3, 4]
    });
    expect(rows.map(row => [row.step, row.layer, row.values[0]])).toEqual([
      [3, 2, -3],
      [4, 2, -4]
    ]);
    expect([evictedRows, sampledEvery]).toEqual([0, 1]);
    const { step, value, units } = await run.scalars(['loss']);
    expect(Array.from(step)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    expect(value[4]).toBe(1);
    expect(units).toEqual({ loss: 'nats/byte' });
  });

  it('has every row once after its link was cut twice', async () => {
    const road = await Road.to(hub.port);
    closers.push(() => road.close());
    const { run } = openRun({ openSocket: hub.opener(road.port) });
    const producer = await startProducer();
    await until(() => run.connection.kind === 'live', 'the run is live');
    for (let step = 1; step <= 30; step += 1) {
      producer.step(step);
      if (step === 10 || step === 20) {
        road.cut();
        await until(() => run.connection.kind === 'reconnecting', 'the break is noticed');
      }
    }
    await until(() => run.status?.step === 30 && run.connection.kind === 'live', 'it is back');
    const all = Array.from({ length: 30 }, (_, index) => index + 1);
    const stepsOf = async (): Promise<number[]> =>
      (await run.tensors({ flag: 'MLP1_mat_mul', layers: [1] })).rows.map(row => row.step);
    // The status comes before the rows that it speaks of.
    while ((await stepsOf()).length < all.length) {
      await new Promise(resolve => setTimeout(resolve, 5));
    }
    expect(await stepsOf()).toEqual(all);
    expect(Array.from((await run.scalars()).step)).toEqual(all);
    expect(run.missedFrames).toBe(0);
    expect(run.status?.warnings ?? []).toEqual([]);
  });

  it('tells of rows at most once in 50 ms, however many come, with the span of their steps', async () => {
    const { run, changes } = openRun();
    const producer = await startProducer();
    await until(() => run.hello?.model !== undefined && run.hello?.model !== null, 'the run is announced');
    const start = performance.now();
    for (let step = 1; step <= 200; step += 1) {
      producer.step(step);
    }
    await until(
      () => rowChanges(changes).some(change => change.stream === 'tensors' && change.lastStep === 200),
      'step 200'
    );
    const tensors = rowChanges(changes).filter(change => change.stream === 'tensors');
    expect(tensors.length).toBeLessThanOrEqual(Math.ceil((performance.now() - start) / 50) + 1);
    expect(tensors[0]?.firstStep).toBe(1);
    tensors
      .slice(1)
      .forEach((change, index) => expect(change.firstStep).toBe((tensors[index]?.lastStep ?? 0) + 1));
  });

  it('stays within its memory and says how much went', async () => {
    const { run, changes } = openRun({ tensorBytes: 64_000, scalarBytes: 4_000 });
    const producer = await startProducer();
    for (let step = 1; step <= 400; step += 1) {
      producer.step(step, 64);
    }
    await until(
      () => rowChanges(changes).some(change => change.stream === 'tensors' && change.lastStep === 400),
      'step 400'
    );
    expect(run.bytes).toBeLessThanOrEqual(68_000);
    const { rows, evictedRows, kept } = await run.tensors({ flag: 'MLP1_mat_mul', layers: [1] });
    expect(rows.length).toBeGreaterThan(20);
    // Of some only the statistics are left.
    expect(rows.length + evictedRows + (kept?.reducedRows ?? 0)).toBe(400);
    const columns = await run.scalars();
    expect(columns.step.length + (columns.thinned ?? 0)).toBe(400);
  });
});

describe('a live run whose hub served others before', () => {
  beforeAll(async () => {
    hub = await RealHub.start();
  });

  afterAll(() => hub.stop());

  it('keeps the configuration in force, and passes errors on', async () => {
    const { run, changes } = openRun();
    const producer = await startProducer();
    await until(() => run.status?.producers?.length === 1, 'a producer is attached');
    const answer = run.configure({ flags: { MLP1_mat_mul: null } });
    await until(() => producer.configure() !== undefined, 'the producer is asked');
    const id = producer.configure()?.id ?? '';
    producer.say({ type: 'configured', id, applied: false, step: 3, config: { flags: {} } });
    producer.say({ type: 'configured', id, applied: true, step: 3, config: { flags: {} } });
    expect((await answer).step).toBe(3);
    expect(run.hello?.config).toEqual({ flags: {} });
    expect(changes.filter(change => change.kind === 'configured')).toHaveLength(2);
    await expect(run.configure({ flags: { Nonsense: null } })).rejects.toMatchObject({
      code: 'unknown-flag'
    });
  });

  it('goes on after a frame whose rows contradict themselves, and says so', async () => {
    const { run, changes } = openRun();
    const producer = await startProducer();
    await until(() => run.status?.producers?.length === 1, 'a producer is attached');
    const frame = tensorFrame(1);
    const text = new TextEncoder().encode('train');
    const at = frame.findIndex((_, index) => text.every((byte, offset) => frame[index + offset] === byte));
    frame.set(new TextEncoder().encode('trein'), at);
    producer.send(frame);
    producer.send(lossFrame(2));
    await until(() => rowChanges(changes).some(change => change.stream === 'scalars'), 'the loss');
    expect(run.unreadable).toBe(1);
    expect(run.status?.warnings).toEqual(['1 messages of the hub could not be read here and were left out.']);
    expect(await run.steps('MLP1_mat_mul')).toEqual([]);
  });

  it('refuses queries after it was disposed of', async () => {
    const { run, changes } = openRun();
    await until(() => run.connection.kind === 'live', 'the run is live');
    run.dispose();
    run.dispose();
    const count = changes.length;
    await expect(run.tensors({ flag: 'F' })).rejects.toBeInstanceOf(StoreError);
    await expect(run.configure({ flags: {} })).rejects.toMatchObject({ code: 'disposed' });
    expect(run.connection).toMatchObject({ kind: 'closed', reason: 'disposed' });
    expect(changes).toHaveLength(count);
  });

  it('stops a query whose caller gave up', async () => {
    const { run } = openRun();
    await expect(run.tensors({ flag: 'F' }, AbortSignal.abort())).rejects.toMatchObject({
      name: 'AbortError'
    });
  });
});

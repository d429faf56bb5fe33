import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { readTrend } from '../../aggregate';
import { RealHub, RealProducer, until } from '../../client/__tests__/real-hub';
import type { IHubSocket, SocketFactory } from '../../client';
import { decodeFrame } from '../../protocol';
import { Runs, StepSpans, type IRunSource } from '..';
import { RealJupyter } from './real-jupyter';

jest.setTimeout(120_000);

const root = mkdtempSync(join(tmpdir(), 'megalens-root-'));
const hubs = mkdtempSync(join(tmpdir(), 'megalens-hubs-'));
const FLAG = 'MLP1_mat_mul';
const query = { flag: FLAG, layers: [1], statistic: 'rms' as const };
const count = (from: number, to: number): number[] =>
  Array.from({ length: to - from + 1 }, (_, at) => from + at);
const closers: (() => unknown)[] = [];
let hub: RealHub;
let producer: RealProducer;
let jupyter: RealJupyter;
let open: (openSocket?: SocketFactory, tensorBytes?: number) => Promise<IRunSource>;

/** A socket that lets tensors of some steps fall. */
function leaky(lost: (step: number) => boolean): SocketFactory {
  return protocols => {
    const inner = hub.opener()(protocols);
    return new Proxy(inner, {
      set: (target, name, value: unknown) =>
        Reflect.set(
          target,
          name,
          name === 'onmessage'
            ? (event: { data: unknown }) => {
                const frame = event.data instanceof ArrayBuffer ? decodeFrame(event.data) : null;
                if (frame === null || frame.stream !== 'tensors' || !lost(frame.step)) {
                  (value as NonNullable<IHubSocket['onmessage']>)(event as never);
                }
              }
            : value
        ),
      get: (target, name) => {
        const value: unknown = Reflect.get(target, name);
        return typeof value === 'function' ? (value.bind(target) as unknown) : value;
      }
    });
  };
}

async function begin(...options: string[]): Promise<void> {
  hub = await RealHub.startIn(hubs, '--name', 'gpt-demo', ...options);
  closers.push(() => hub.stop());
  producer = await RealProducer.join(hub);
  closers.push(() => producer.close());
  const api = jupyter.api();
  const [entry] = (await api.list()).runs.filter(run => run.state === 'live');
  const id = entry?.id ?? '';
  open = async (openSocket = jupyter.opener(id), tensorBytes = 1 << 24) => {
    const runs = new Runs({
      api,
      openSocket: () => openSocket,
      peer: { name: 'jest', version: '0' },
      live: { tensorBytes }
    });
    closers.push(() => runs.dispose());
    return (await runs.acquire(id)).source;
  };
}

/** Wait until a page has the newest step, and the recording too. */
async function arrived(run: IRunSource, step: number): Promise<void> {
  const there = async (): Promise<boolean> => (await run.steps(FLAG)).at(-1) === step;
  for (const end = Date.now() + 20_000; !(await there()) && Date.now() < end;) {
    await new Promise(done => setTimeout(done, 20));
  }
  await until(() => run.status?.step === step, `the status of step ${step}`);
}

/** Say a status until a page has every step: with each it reads some of what it lost from the recording. */
async function whole(run: IRunSource, step: number): Promise<void> {
  const steps = async (): Promise<number[]> =>
    Array.from((await readTrend(run, query)).lines[0]?.steps ?? []);
  for (const end = Date.now() + 20_000; (await steps()).length < step && Date.now() < end;) {
    say(step);
    await new Promise(done => setTimeout(done, 20));
  }
  expect(await steps()).toEqual(count(1, step));
}

const say = (step: number): void => producer.say({ type: 'status', state: 'training', step });

// Its start takes longer than all that is asked of it.
beforeAll(async () => {
  jupyter = await RealJupyter.start(root, hubs);
});

afterEach(async () => {
  for (const close of closers.splice(0).reverse()) {
    await close();
  }
});

afterAll(async () => {
  await jupyter.stop();
  [root, hubs].forEach(folder => rmSync(folder, { recursive: true, force: true }));
});

const RECORDED = ['--record', join(root, 'megalens-runs')];

describe('a page on a run that goes on', () => {
  it('shows what came before it was opened, from the recording', async () => {
    await begin(...RECORDED, '--backlog-bytes', '20000');
    count(1, 300).forEach(step => producer.step(step));
    say(300);
    const run = await open();
    await arrived(run, 300);
    expect(await run.steps(FLAG)).toEqual(count(1, 300));
    expect(await run.shapeOf(FLAG)).toMatchObject({ layers: [1, 2], ranks: [0], passes: ['forward'] });
    const { rows } = await run.tensors({ flag: FLAG, steps: [7, 8] });
    expect(rows.map(({ step, layer, values }) => [step, layer, values[0]])).toEqual([
      [7, 1, 7],
      [7, 2, -7],
      [8, 1, 8],
      [8, 2, -8]
    ]);
    const trend = await readTrend(run, query);
    expect(Array.from(trend.lines[0]?.steps ?? [])).toEqual(count(1, 300));
    expect(Array.from(trend.lines[0]?.values ?? [])).toEqual(count(1, 300));
    expect([trend.lines[0]?.starts, trend.total, trend.missing]).toEqual([[], 300, []]);
    const cut = await readTrend(run, { ...query, steps: [100, 199] });
    expect(Array.from(cut.lines[0]?.steps ?? [])).toEqual(count(100, 199));
  });

  it('shows what memory no longer holds, and goes on', async () => {
    await begin(...RECORDED);
    const run = await open(undefined, 60_000);
    // Some at a time: of all at once the hub passes over what the page is too busy to take.
    for (let end = 50; end <= 500; end += 50) {
      count(end - 49, end).forEach(step => producer.step(step));
      say(end);
      await arrived(run, end);
    }
    producer.step(501);
    await whole(run, 501);
    const { kept, lackingTo } = await run.tensors({ flag: FLAG, reduced: true });
    expect(kept?.thinnedTo).toBeGreaterThan(200);
    expect(lackingTo).toBeGreaterThan(100);
    const trend = await readTrend(run, query);
    expect(Array.from(trend.lines[0]?.steps ?? [])).toEqual(count(1, 501));
    expect(Array.from(trend.lines[0]?.values ?? [])).toEqual(count(1, 501));
    expect(await run.steps(FLAG)).toEqual(count(1, 501));
    const { rows } = await run.tensors({ flag: FLAG, layers: [2], steps: [41, 60] });
    expect(rows.map(row => row.values[0])).toEqual(count(41, 60).map(step => -step));
    expect(rows.some(row => row.reduced)).toBe(false);
  });

  it('reads again what was lost on the way, and names it until then', async () => {
    await begin(...RECORDED);
    const run = await open(leaky(step => step >= 20 && step < 30));
    await until(() => run.connection.kind === 'live', 'the run is live');
    count(1, 60).forEach(step => producer.step(step));
    await until(() => run.hello !== null, 'hello');
    for (const end = Date.now() + 20_000; Date.now() < end;) {
      const { rows } = await run.tensors({ flag: FLAG, reduced: true });
      if (rows.at(-1)?.step === 60) {
        break;
      }
      await new Promise(done => setTimeout(done, 5));
    }
    const holes = await readTrend(run, query);
    if (!holes.lines[0]?.steps.includes(25)) {
      expect(holes.missing[0]?.first).toBeLessThanOrEqual(20);
      expect(holes.missing.at(-1)?.last).toBeGreaterThanOrEqual(29);
      expect(holes.lines[0]?.starts.map(at => holes.lines[0]?.steps[at])).toEqual([30]);
      expect((await run.events?.())?.filter(({ kind }) => kind === 'lost')).not.toEqual([]);
    }
    await whole(run, 60);
    const trend = await readTrend(run, query);
    expect([trend.missing, trend.lines[0]?.starts]).toEqual([[], []]);
  });

  it('names the steps that nobody can give', async () => {
    await begin('--backlog-bytes', '20000');
    count(1, 300).forEach(step => producer.step(step));
    say(300);
    const run = await open();
    await until(() => run.status?.streams?.['tensors'] !== undefined, 'the status');
    await arrived(run, 300);
    const trend = await readTrend(run, query);
    const first = trend.lines[0]?.steps[0] ?? 0;
    expect(first).toBeGreaterThan(1);
    expect(trend.missing.map(span => [span.first, span.last])).toEqual([[1, first - 1]]);
    const [event] = (await run.events?.()) ?? [];
    expect(event).toMatchObject({ kind: 'lost', first: 1, last: first - 1 });
  });
});

it('keeps ranges apart and bounded', () => {
  const spans = new StepSpans();
  spans.add(5, 9);
  spans.add(1, 2);
  spans.add(10, 12);
  expect(spans.all).toEqual([
    [1, 2],
    [5, 12]
  ]);
  spans.remove(1, 2);
  count(1, 600).forEach(at => spans.add(at * 100, at * 100 + 1));
  expect(spans.all.length).toBe(256);
  expect([spans.all[0]?.[0], spans.all.at(-1)?.[1]]).toEqual([5, 60_001]);
});

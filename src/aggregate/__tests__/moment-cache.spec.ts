/** @jest-environment ./jest.environment.node.js */
import { ClientError } from '../../client';
import { StoreError } from '../../store';
import { groupMoments, MomentCache, WorkQueue, type IAggregateWorker } from '..';
import { RowSource, lines, type IRow } from './moment-rows';
import { NodeWorkers } from './node-workers';
import type { MomentGroupsRequest } from '../../protocol/requests.generated';

const workers = new NodeWorkers();
afterAll(() => workers.dispose());

const QUESTION: MomentGroupsRequest = { stat: 'grad', statistic: 'mean', by: ['name'] };
const noWorker = (): Promise<IAggregateWorker> => Promise.reject(new Error('no worker is needed'));
const steps = (from: number, to: number, more: IRow = {}): IRow[] =>
  Array.from({ length: to - from + 1 }, (_, at) => ({ step: from + at, mean: from + at, ...more }));

describe('the rows of a run', () => {
  const shelved = (
    limit?: number
  ): ((source: RowSource, question?: Partial<MomentGroupsRequest>) => Promise<unknown>) => {
    const cache = new MomentCache(new WorkQueue(noWorker), limit);
    return async (source, question) =>
      lines(await groupMoments(source, { ...QUESTION, ...question }, undefined, cache));
  };

  it('are brought once, whatever is asked of them', async () => {
    const ask = shelved();
    const source = new RowSource(steps(1, 3));
    expect(await ask(source)).toEqual({ w: { 1: 1, 2: 2, 3: 3 } });
    expect(await ask(source, { by: [], statistic: 'l2', where: { name: 'v' } })).toEqual({});
    expect(await ask(source, { steps: [2, 2] })).toEqual({ w: { 2: 2 } });
    await Promise.all([
      ask(source, { by: ['layer'] }),
      ask(source, { stat: 'param' }),
      ask(source, { stat: 'param' })
    ]);
    expect(source.asked).toEqual([null, null]);
  });

  it('are added to from the newest step on, which may have come in part', async () => {
    const ask = shelved();
    const source = new RowSource(steps(1, 3));
    await ask(source);
    source.add([{ step: 3, name: 'late', mean: 30 }, ...steps(4, 5)]);
    expect(await ask(source)).toEqual({ late: { 3: 30 }, w: { 1: 1, 2: 2, 3: 3, 4: 4, 5: 5 } });
    expect(source.asked).toEqual([null, [3, Number.MAX_SAFE_INTEGER]]);
    await ask(source);
    expect(source.asked).toHaveLength(2);
  });

  it('are brought anew where earlier ones are not what they were', async () => {
    const ask = shelved();
    const source = new RowSource(steps(1, 5));
    await ask(source);
    source.all = [...steps(1, 2), ...steps(3, 6, { mean: 9 })];
    source.add([{ step: 1, name: 'older', mean: 1 }]);
    expect(await ask(source)).toEqual({ older: { 1: 1 }, w: { 1: 1, 2: 2, 3: 9, 4: 9, 5: 9, 6: 9 } });
    source.all = steps(1, 3);
    source.add([]);
    expect(await ask(source)).toEqual({ w: { 1: 1, 2: 2, 3: 3 } });
  });

  it('are given up where they are many, those asked for longest ago first', async () => {
    const ask = shelved(8);
    const [a, b] = [new RowSource(steps(1, 5)), new RowSource(steps(1, 4))];
    await ask(a);
    await ask(b);
    await ask(b);
    expect(await ask(a)).toEqual({ w: { 1: 1, 2: 2, 3: 3, 4: 4, 5: 5 } });
    expect([a.asked.length, b.asked.length]).toEqual([2, 1]);
  });

  it('stay where they are when there are too many: the server answers, and is not asked for them again', async () => {
    const ask = shelved();
    const source = new RowSource(steps(1, 5, { name: 'w' }));
    const local = await groupMoments(source, QUESTION, undefined, new MomentCache(new WorkQueue(noWorker)));
    source.server = local;
    source.asked.length = 0;
    // It shapes its answer itself, over every step of the run: what it thinned out could not be smoothed here.
    expect(await ask(source, { show: 'delta', smoothing: 2, points: 100 })).toEqual({
      w: { 1: 1, 2: 2, 3: 3, 4: 4, 5: 5 }
    });
    await ask(source, { show: 'percent', steps: [2, 5], series: 3 });
    expect(source.asked).toHaveLength(1);
    expect(source.serverAsked).toEqual([
      { ...QUESTION, show: 'delta', smoothing: 2, points: 100 },
      { ...QUESTION, show: 'percent', steps: [2, 5], series: 3 }
    ]);
  });

  it('refuse as the rows would where the server does', async () => {
    const cache = new MomentCache(new WorkQueue(noWorker));
    const refused = async (serverCode: string, status: number): Promise<unknown> => {
      const source = new RowSource(steps(1, 2));
      const cause = new ClientError('refused', 'Choose a role.', { serverCode, status });
      source.rows = async () => null;
      source.groups = () => Promise.reject(new StoreError('unavailable', 'Choose a role.', { cause }));
      return groupMoments(source, QUESTION, undefined, cache).catch((error: unknown) => error);
    };
    const name = 'AggregateError';
    expect(await refused('mixed', 400)).toMatchObject({ name, code: 'mixed', message: 'Choose a role.' });
    expect(await refused('bad-parameter', 400)).toMatchObject({ name, code: 'invalid' });
    expect(await refused('not-found', 404)).toMatchObject({ name: 'StoreError', code: 'unavailable' });
  });

  it('are not waited for by who gave up', async () => {
    const cache = new MomentCache(new WorkQueue(noWorker));
    const source = new RowSource(steps(1, 3));
    const control = new AbortController();
    const asked = groupMoments(source, QUESTION, control.signal, cache);
    control.abort();
    await expect(asked).rejects.toMatchObject({ name: 'AbortError' });
    expect((await groupMoments(source, QUESTION, undefined, cache)).keys).toEqual([['w']]);
  });
});

describe('many rows', () => {
  const large = (): RowSource =>
    new RowSource(
      Array.from({ length: 600 }, (_, row) => ({
        step: Math.floor(row / 20),
        name: `layers.${row % 4}.w${row % 20}`,
        count: 3,
        mean: Math.sin(row),
        m2: 2,
        m4: 4,
        nanCount: row === 307 ? 1 : 0
      }))
    );
  const cache = (queue: WorkQueue): MomentCache => new MomentCache(queue, undefined, 100);

  it('are kept in the worker, which gives the same answers', async () => {
    const here = cache(new WorkQueue(() => Promise.resolve(null)));
    const queue = new WorkQueue(async () => workers.open());
    const there = cache(queue);
    const [a, b] = [large(), large()];
    const questions: MomentGroupsRequest[] = [
      { ...QUESTION, by: ['layer'], statistic: 'kurtosis' },
      { ...QUESTION, by: [], statistic: 'l2', points: 50 },
      { ...QUESTION, series: 3, show: 'relative', smoothing: 5, steps: [10, 20] }
    ];
    for (const question of questions) {
      const found = await groupMoments(a, question, undefined, there);
      expect(found).toEqual(await groupMoments(b, question, undefined, here));
    }
    expect(a.asked).toHaveLength(1);
    expect(workers.opened).toHaveLength(1);
    await expect(
      groupMoments(a, { ...QUESTION, where: { layer: 'x' } }, undefined, there)
    ).rejects.toMatchObject({ name: 'AggregateError', code: 'invalid' });
    queue.dispose();
  });

  it('are brought to the page where the worker breaks, before or after it got them', async () => {
    const broken = new WorkQueue(async () => workers.open(workers.missing));
    const source = large();
    const found = await groupMoments(source, { ...QUESTION, by: [] }, undefined, cache(broken));
    expect(found.step).toHaveLength(30);
    const faces: IAggregateWorker[] = [];
    const dies = new WorkQueue(async () => {
      faces.push(workers.open());
      return faces[0] ?? null;
    });
    const kept = cache(dies);
    await groupMoments(source, QUESTION, undefined, kept);
    faces[0]?.onerror?.(new Error('out of memory'));
    expect(await groupMoments(source, { ...QUESTION, by: [] }, undefined, kept)).toEqual(found);
    expect(faces).toHaveLength(1);
  });
});

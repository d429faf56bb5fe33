/** @jest-environment ./jest.environment.node.js */
import type { ITensorRow } from '../../store/tensor-data';
import type { IAggregateWorker } from '..';
import { AggregateError, groupBy, isKnown, momentsOf, trend, trendOf, WorkQueue, WORKER_ROWS } from '..';
import { NodeWorkers } from './node-workers';

const workers = new NodeWorkers();
const nodeWorker = (file?: string): IAggregateWorker => workers.open(file);

afterAll(() => workers.dispose());

/** Tensors that nobody knows yet, of this many values together. */
function tensors(values: number): Float32Array[] {
  return Array.from({ length: Math.ceil(values / 1000) }, (_, index) =>
    Float32Array.from({ length: 1000 }, (_, place) => (place === 9 ? NaN : Math.sin(index + place) + index))
  );
}

/** What is known of tensors is what a pass over them here says. */
function expectKnown(all: readonly Float32Array[]): void {
  expect(all.every(isKnown)).toBe(true);
  all.forEach(values => expect(momentsOf(values)).toEqual(momentsOf(values.slice())));
}

describe('groupBy', () => {
  const keysOf = (first: Float64Array | Int32Array, second: Int32Array): number[][] => {
    const groups = groupBy(first, second);
    return Array.from(groups.group, group => [groups.first[group] ?? NaN, groups.second[group] ?? NaN]);
  };

  it('numbers groups in order of the first key, then the second', () => {
    const groups = groupBy(Int32Array.of(2, 1, 2, 2, 1), Int32Array.of(1, 1, 1, 0, 1));
    expect(Array.from(groups.first)).toEqual([1, 2, 2]);
    expect(Array.from(groups.second)).toEqual([1, 0, 1]);
    expect(Array.from(groups.group)).toEqual([2, 0, 2, 1, 0]);
  });

  it('is the same for any order of the rows and any distance of the steps', () => {
    const step = Float64Array.from({ length: 20_000 }, (_, at) => 1 + Math.floor(at / 40));
    const layer = Int32Array.from(step, (_, at) => at % 7);
    const near = groupBy(step, layer);
    const apart = groupBy(
      step.map(each => each * 1e9),
      layer
    );
    expect(apart.group).toEqual(near.group);
    expect(apart.first).toEqual(near.first.map(each => each * 1e9));
    expect(apart.second).toEqual(near.second);
    const back = groupBy(step.slice().reverse(), layer.slice().reverse());
    expect(back.group.reverse()).toEqual(near.group);
  });

  it('groups rows that leave holes in the grid of steps and layers', () => {
    expect(keysOf(Int32Array.of(9, 1, 9, 4), Int32Array.of(3, 1, 1, 3))).toEqual([
      [9, 3],
      [1, 1],
      [9, 1],
      [4, 3]
    ]);
    expect(groupBy(new Int32Array(0), new Int32Array(0)).first).toHaveLength(0);
  });
});

describe('the work queue', () => {
  const MANY = WORKER_ROWS + 1;

  it('sums in one worker, whoever asks, and leaves the values whole', async () => {
    let started = 0;
    const queue = new WorkQueue(async () => {
      started += 1;
      return nodeWorker();
    });
    const [one, other] = [tensors(MANY), tensors(MANY)];
    await Promise.all([queue.learn(one), queue.learn(other)]);
    expect(started).toBe(1);
    expectKnown([...one, ...other]);
    expect(one[0]?.length).toBe(1000);
    queue.dispose();
  });

  it('does few rows in place', async () => {
    const queue = new WorkQueue(() => Promise.reject(new Error('no worker is needed')));
    const few = tensors(1000);
    await queue.learn(few);
    expectKnown(few);
    queue.dispose();
  });

  it('does many rows in place where no worker starts, or where it breaks', async () => {
    for (const open of [() => Promise.resolve(null), async () => nodeWorker(workers.missing)]) {
      const queue = new WorkQueue(open);
      const many = tensors(MANY);
      await queue.learn(many);
      expectKnown(many);
      queue.dispose();
    }
  });

  it("passes the worker's error on", async () => {
    const queue = new WorkQueue(async () => nodeWorker());
    await queue.learn(tensors(MANY));
    await expect(
      queue.askTables(
        'worker',
        { kind: 'group', tables: ['none'], question: { stat: 'grad', statistic: 'l2', by: [] } },
        []
      )
    ).rejects.toMatchObject({ name: 'AggregateError', code: 'lost' });
    queue.dispose();
  });

  it('sums many tensors up in a worker, once, and with the numbers of the pass in place', async () => {
    const tensors = Array.from({ length: 300 }, (_, index) =>
      Float32Array.from({ length: 1000 }, (_, place) => (place === 9 ? NaN : Math.sin(index + place) + index))
    );
    let sent = 0;
    const queue = new WorkQueue(async () => {
      const worker = nodeWorker();
      const post = worker.postMessage;
      return Object.assign(worker, {
        postMessage: (message: unknown, transfer: ArrayBufferLike[]) => {
          sent += 1;
          post(message, transfer);
        }
      });
    });
    await queue.learn(tensors);
    expect(tensors.every(isKnown)).toBe(true);
    tensors.forEach(values => expect(momentsOf(values)).toEqual(momentsOf(values.slice())));
    await queue.learn(tensors);
    expect(sent).toBe(1);
    queue.dispose();
  });

  it('draws the same trend with and without a worker', async () => {
    const rows = Array.from({ length: 200 }, (_, index) => ({
      step: 1 + Math.floor(index / 4),
      layer: index % 4,
      whole: null,
      values: Float32Array.from({ length: 1000 }, (_, place) => Math.cos(index * place))
    })) as unknown as ITensorRow[];
    const queue = new WorkQueue(async () => nodeWorker());
    const there = await trendOf(rows, 'std', undefined, queue);
    const here = trend(
      rows.map(row => ({ ...row, values: row.values.slice() })),
      'std'
    );
    expect(there).toEqual(here);
    queue.dispose();
  });

  it('rejects what waits when it is disposed of, and what comes after', async () => {
    const queue = new WorkQueue(async () => nodeWorker());
    const waiting = queue.learn(tensors(MANY));
    const outcome = expect(waiting).rejects.toThrow(AggregateError);
    await Promise.resolve();
    await new Promise(resolve => setImmediate(resolve));
    queue.dispose();
    queue.dispose();
    await outcome;
    await expect(queue.learn(tensors(MANY))).rejects.toThrow(/closed/);
  });
});

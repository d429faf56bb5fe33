/** @jest-environment node */
import type { ITensorRow } from '../../store/source';
import {
  AggregateError,
  isKnown,
  momentsOf,
  trend,
  trendOf,
  WorkQueue,
  STATISTICS,
  WORKER_ROWS,
  rollup,
  type IAggregateWorker,
  type Statistic
} from '..';
import { NodeWorkers } from './node-workers';

const workers = new NodeWorkers();
const nodeWorker = (file?: string): IAggregateWorker => workers.open(file);

afterAll(() => workers.dispose());

function rows(length: number): { step: Float64Array; layer: Int32Array; value: Float64Array } {
  return {
    step: Float64Array.from({ length }, (_, index) => 1 + Math.floor(index / 40)),
    layer: Int32Array.from({ length }, (_, index) => index % 7),
    value: Float64Array.from({ length }, (_, index) => (index % 1013 === 5 ? NaN : Math.sin(index) * 100))
  };
}

describe('rollup', () => {
  it('takes every statistic of every step and layer', () => {
    const result = rollup(
      {
        step: Int32Array.of(2, 1, 2, 2, 1),
        layer: Int32Array.of(1, 1, 1, 0, 1),
        value: Float32Array.of(3, 5, -4, 9, Infinity)
      },
      STATISTICS
    );
    expect(Array.from(result.step)).toEqual([1, 2, 2]);
    expect(Array.from(result.layer)).toEqual([1, 0, 1]);
    const column = (name: Statistic): number[] => Array.from(result.statistics[name] ?? []);
    expect(column('mean')).toEqual([5, 9, -0.5]);
    expect(column('std')).toEqual([0, 0, 3.5]);
    expect(column('min')).toEqual([5, 9, -4]);
    expect(column('max')).toEqual([5, 9, 3]);
    expect(column('rms')).toEqual([5, 9, Math.sqrt(12.5)]);
    expect(column('abs_mean')).toEqual([5, 9, 3.5]);
    expect(column('nonfinite')).toEqual([1, 0, 0]);
  });

  it('is the same for any order of the rows and any distance of the steps', () => {
    const data = rows(20_000);
    const far = { ...data, step: data.step.map(step => step * 1e9) };
    const near = rollup(data, ['mean', 'std']);
    const apart = rollup(far, ['mean', 'std']);
    expect(apart.statistics).toEqual(near.statistics);
    expect(apart.step).toEqual(near.step.map(step => step * 1e9));
    expect(apart.layer).toEqual(near.layer);
  });

  it('groups rows that leave holes in the grid of steps and layers', () => {
    const data = {
      step: Int32Array.of(9, 1, 9, 4),
      layer: Int32Array.of(3, 1, 1, 3),
      value: Float64Array.of(1, 2, 3, 4)
    };
    const result = rollup(data, ['max']);
    expect(Array.from(result.step)).toEqual([1, 4, 9, 9]);
    expect(Array.from(result.layer)).toEqual([1, 3, 1, 3]);
    expect(Array.from(result.statistics.max ?? [])).toEqual([2, 4, 3, 1]);
    const none = rollup({ step: new Int32Array(0), layer: new Int32Array(0), value: new Float64Array(0) }, [
      'max'
    ]);
    expect(none.step).toHaveLength(0);
  });

  it('refuses columns of different lengths and unknown statistics', () => {
    const data = rows(3);
    expect(() => rollup({ ...data, value: new Float64Array(2) }, ['mean'])).toThrow(/one length/);
    expect(() => rollup(data, ['mode' as Statistic])).toThrow(AggregateError);
  });
});

describe('the work queue', () => {
  const many = rows(WORKER_ROWS + 1);

  it('answers many rows from a worker with the same numbers, and leaves the columns whole', async () => {
    let started = 0;
    const queue = new WorkQueue(async () => {
      started += 1;
      return nodeWorker();
    });
    const results = await Promise.all([
      queue.roll(many, ['mean', 'std', 'nonfinite']),
      queue.roll(many, ['max'])
    ]);
    expect(started).toBe(1);
    expect(results[0]).toEqual(rollup(many, ['mean', 'std', 'nonfinite']));
    expect(results[1]).toEqual(rollup(many, ['max']));
    expect(many.value.length).toBe(WORKER_ROWS + 1);
    queue.dispose();
  });

  it('does few rows in place', async () => {
    const queue = new WorkQueue(() => Promise.reject(new Error('no worker is needed')));
    expect(await queue.roll(rows(100), ['rms'])).toEqual(rollup(rows(100), ['rms']));
    queue.dispose();
  });

  it('does many rows in place where no worker starts, or where it breaks', async () => {
    const none = new WorkQueue(() => Promise.resolve(null));
    expect(await none.roll(many, ['mean'])).toEqual(rollup(many, ['mean']));
    const broken = new WorkQueue(async () => nodeWorker(workers.missing));
    expect(await broken.roll(many, ['mean'])).toEqual(rollup(many, ['mean']));
    none.dispose();
    broken.dispose();
  });

  it("passes the worker's error on", async () => {
    const queue = new WorkQueue(async () => nodeWorker());
    await expect(queue.roll({ ...many, layer: new Int32Array(1) }, ['mean'])).rejects.toThrow(/one length/);
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
    const waiting = queue.roll(many, ['mean']);
    const outcome = expect(waiting).rejects.toThrow(AggregateError);
    await Promise.resolve();
    await new Promise(resolve => setImmediate(resolve));
    queue.dispose();
    queue.dispose();
    await outcome;
    await expect(queue.roll(many, ['mean'])).rejects.toThrow(/closed/);
  });
});

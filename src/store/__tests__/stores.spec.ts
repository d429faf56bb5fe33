/** @jest-environment ./jest.environment.node.js */
import { decodeFrame, encodeFrame, frameTable, type StreamTable } from '../../protocol';
import { rmsOf, ScalarStore, TensorStore, type ITensorRow } from '..';
import { EvictedLog } from '../tensor-series';
import { RowCache } from '../recording';
import { rowOf } from './memory-run';

function scalars(
  rows: { step: number; value: number; name?: string; time?: number; rank?: number }[]
): StreamTable {
  const columns = {
    step: rows.map(row => row.step),
    time: rows.map(row => row.time ?? row.step),
    rank: rows.map(row => row.rank ?? 0),
    name: rows.map(row => row.name ?? 'loss'),
    value: rows.map(row => row.value),
    unit: rows.map(() => 'nats')
  };
  return frameTable(decodeFrame(encodeFrame('scalars', columns, { step: 1 })));
}

const row = (step: number, more: Partial<ITensorRow> = {}): ITensorRow =>
  rowOf({
    ...{ step, layer: 1, flag: 'F', compressor: 'NoOp()', sourceShape: [1, 4], shape: [1, 4] },
    values: new Float32Array(4).fill(step),
    ...more
  });

const steps = (store: TensorStore, query: Parameters<TensorStore['query']>[0]): number[] =>
  store.query(query).rows.map(item => item.step);

describe('the scalar store', () => {
  it('answers names in order, each ordered by step, with units', () => {
    const store = new ScalarStore(1e6);
    store.append(
      scalars([
        { step: 2, value: 20 },
        { step: 3, value: NaN },
        { step: 1, value: 9, name: 'lr' }
      ]),
      false
    );
    expect(store.append(scalars([{ step: 1, value: 10 }]), false)).toEqual([1, 1]);
    const columns = store.columns(['lr', 'loss', 'nothing']);
    expect(columns.name).toEqual(['lr', 'loss', 'loss', 'loss']);
    expect(Array.from(columns.step)).toEqual([1, 1, 2, 3]);
    expect(Array.from(columns.value)).toEqual([9, 10, 20, NaN]);
    expect(columns.units).toEqual({ lr: 'nats', loss: 'nats' });
    expect(store.columns().name).toHaveLength(4);
  });

  it('answers the same object until rows come', () => {
    const store = new ScalarStore(1e6);
    store.append(scalars([{ step: 1, value: 1 }]), false);
    const before = store.columns(['loss']);
    expect(store.columns(['loss'])).toBe(before);
    store.append(scalars([{ step: 2, value: 1 }]), false);
    expect(store.columns(['loss']).step).toHaveLength(2);
    expect(before.step).toHaveLength(1);
  });

  it('leaves out rows that come a second time, by rank, when told that some may', () => {
    const store = new ScalarStore(1e6);
    const rows = [
      { step: 1, value: 1 },
      { step: 1, value: 2, rank: 1, time: 0.5 },
      { step: 2, value: 3 }
    ];
    store.append(scalars(rows), false);
    expect(store.append(scalars(rows), true)).toBeNull();
    expect(store.append(scalars([...rows, { step: 3, value: 4 }]), true)).toEqual([3, 3]);
    expect(store.columns().step).toHaveLength(4);
  });

  it('stays within its bound by thinning the older half, keeping extremes and non-finite points, and counts', () => {
    const store = new ScalarStore(100_000);
    const value = (step: number): number => (step === 777 ? NaN : step === 1234 ? 1e6 : Math.sin(step));
    for (let start = 1; start <= 20_000; start += 500) {
      const block = Array.from({ length: 500 }, (_, index) => ({
        step: start + index,
        value: value(start + index)
      }));
      store.append(scalars(block), false);
      expect(store.bytes).toBeLessThanOrEqual(100_000);
    }
    const columns = store.columns();
    expect(store.thinned).toBe(20_000 - columns.step.length);
    expect(columns.thinned).toBe(store.thinned);
    expect(Array.from(columns.step)).toEqual(expect.arrayContaining([777, 1234, 20_000]));
    expect(Array.from(columns.step)).toEqual(Array.from(columns.step).sort((a, b) => a - b));
  });
});

describe('the tensor store', () => {
  it('answers by flag, part, layer, phase and steps, ordered by step, micro-batch and layer', () => {
    const store = new TensorStore(1e6);
    [
      row(2, { layer: 2 }),
      row(2, { layer: 1, microBatch: 1 }),
      row(2),
      row(1, { part: 'k' }),
      row(1, { phase: 'eval' }),
      row(5, { flag: 'G' })
    ].forEach(item => store.add(item));
    const all = store.query({ flag: 'F' }).rows;
    expect(all.map(({ step, microBatch, layer }) => [step, microBatch, layer])).toEqual([
      [1, 0, 1],
      [1, 0, 1],
      [2, 0, 1],
      [2, 0, 2],
      [2, 1, 1]
    ]);
    expect(steps(store, { flag: 'F', part: 'k' })).toEqual([1]);
    expect(steps(store, { flag: 'F', phase: 'eval' })).toEqual([1]);
    expect(steps(store, { flag: 'F', layers: [2] })).toEqual([2]);
    expect(steps(store, { flag: 'F', steps: [2, 9] })).toEqual([2, 2, 2]);
    expect(steps(store, { flag: 'nothing' })).toEqual([]);
    expect(store.steps('F')).toEqual([1, 2]);
    expect(store.steps('F', 'eval')).toEqual([1]);
    expect(store.shapeOf('F')).toEqual({ parts: ['', 'k'], layers: [1, 2], ranks: [0], passes: ['forward'] });
  });

  it('takes rows in any order and keeps the newest of equal ones', () => {
    const store = new TensorStore(1e6);
    [4, 2, 9, 1, 2].forEach(step => store.add(row(step)));
    store.add(row(9, { values: new Float32Array(4).fill(-1) }));
    expect(steps(store, { flag: 'F' })).toEqual([1, 2, 4, 9]);
    expect(store.query({ flag: 'F', steps: [9, 9] }).rows[0]?.values[0]).toBe(-1);
    const bytes = store.bytes;
    store.add(row(9));
    expect(store.bytes).toBe(bytes);
  });

  it('keeps its own copy of the values', () => {
    const store = new TensorStore(1e6);
    const values = new Float32Array(4).fill(7);
    store.add(row(1, { values }));
    values.fill(0);
    expect(Array.from(store.query({ flag: 'F' }).rows[0]?.values ?? [])).toEqual([7, 7, 7, 7]);
  });

  it('keeps the rows of ranks and passes apart, and answers for one rank or the lowest that has a layer', () => {
    const store = new TensorStore(1e6);
    const values = (value: number): Float32Array => new Float32Array(4).fill(value);
    store.add(row(1, { rank: 3, layer: 2, values: values(32) }));
    store.add(row(1, { rank: 1, layer: 2, values: values(12) }));
    store.add(row(1, { rank: 0, layer: 1, values: values(1) }));
    store.add(row(1, { rank: 2, layer: 1, values: values(21) }));
    store.add(row(1, { rank: 0, layer: 1, pass: 'backward', values: values(-1) }));
    store.add(row(2, { rank: 2, layer: 1, pass: 'backward' }));
    const first = (query: object): number[] =>
      store.query({ flag: 'F', ...query }).rows.map(item => item.values[0] ?? NaN);
    expect(first({ pass: 'forward' })).toEqual([1, 21, 12, 32]);
    expect(first({ pass: 'forward', rank: 'lowest' })).toEqual([1, 12]);
    expect(first({ pass: 'forward', rank: 3 })).toEqual([32]);
    expect(first({ pass: 'backward', rank: 0 })).toEqual([-1]);
    expect(store.steps('F', 'train', { pass: 'backward' })).toEqual([1, 2]);
    expect(store.steps('F', 'train', { pass: 'forward' })).toEqual([1]);
    expect(store.shapeOf('F')).toMatchObject({ ranks: [0, 1, 2, 3], passes: ['forward', 'backward'] });
  });

  it('answers the newest row of each layer whose compression error was measured', () => {
    const store = new TensorStore(1e6);
    for (let step = 1; step <= 20; step += 1) {
      store.add(row(step, { compressionError: step % 8 === 0 ? step / 100 : NaN }));
      store.add(row(step, { layer: 2 }));
    }
    const measured = (last: number): [number, number][] =>
      store
        .query({ flag: 'F', rank: 'lowest', steps: [0, last], measured: true })
        .rows.map(item => [item.step, item.compressionError]);
    expect(measured(20)).toEqual([[16, 0.16]]);
    expect(measured(15)).toEqual([[8, 0.08]]);
    expect(measured(7)).toEqual([]);
  });

  it('stays within its bound through a long run: recent tensors in full, of older ones the extremes, and of the others the statistics', () => {
    const limit = 2 << 20;
    const [last, layers, size] = [10_000, [1, 2], 128];
    const store = new TensorStore(limit);
    const rms = (step: number, layer: number): number =>
      step === 777 && layer === 2 ? 1000 : step === 7000 ? 0.001 : 2 + Math.sin(step * layer);
    let most = 0;
    store.add(row(1, { flag: 'Rare' }));
    for (let step = 1; step <= last; step += 1) {
      for (const layer of layers) {
        store.add(row(step, { layer, values: new Float32Array(size).fill(rms(step, layer)) }));
      }
      most = Math.max(most, store.bytes);
    }
    expect(most).toBeLessThanOrEqual(limit);
    expect(steps(store, { flag: 'Rare' })).toEqual([1]);
    const { rows, evictedRows, kept } = store.query({ flag: 'F', layers: [2], reduced: true });
    const tensors = rows.filter(item => !item.reduced);
    const thinnedTo = kept?.thinnedTo ?? NaN;
    // Every step is a tensor, a statistic or counted as gone, and only older ones are not tensors.
    expect(rows.length + evictedRows).toBe(last);
    expect(kept?.reducedRows).toBe(rows.length - tensors.length);
    expect(kept?.reducedRows).toBeGreaterThan(0);
    expect(tensors.filter(item => item.step > thinnedTo)).toHaveLength(last - thinnedTo);
    expect(last - thinnedTo).toBeGreaterThan(300);
    expect(kept).toMatchObject({ bytes: store.bytes, limitBytes: limit });
    // The extremes of the whole run are still tensors, however old.
    const of = (step: number): ITensorRow | undefined => tensors.find(item => item.step === step);
    expect(of(777)?.values[0]).toBe(1000);
    expect(of(7000)?.values[0]).toBeCloseTo(0.001);
    // What is left of a reduced row are its sums.
    const reduced = rows.find(item => item.reduced);
    expect(reduced?.values).toHaveLength(0);
    expect(rmsOf(reduced?.values ?? new Float32Array(0))).toBeCloseTo(rms(reduced?.step ?? 0, 2), 5);
    // The oldest steps are sparser than the newer ones, and there still are some.
    const between = (from: number, to: number): number =>
      rows.filter(item => item.step >= from && item.step < to).length;
    expect(between(1, 2001)).toBeGreaterThan(0);
    expect(between(1, 2001)).toBeLessThan(between(last - 2000, last + 1));
    expect(store.steps('F', 'train', { layers: [2] })).toEqual(tensors.map(item => item.step));
    expect(store.query({ flag: 'F', steps: [last - 100, last] })).toMatchObject({
      evictedRows: 0,
      kept: { thinnedTo: null, reducedRows: 0 }
    });
  });

  it('takes a row that comes again after it was reduced for the same', () => {
    const store = new TensorStore(20 * 1624);
    for (let step = 1; step <= 60; step += 1) {
      store.add(row(step, { values: new Float32Array(256).fill(step) }));
    }
    const before = store.query({ flag: 'F', reduced: true });
    const again = before.rows.find(item => item.reduced)?.step ?? 0;
    store.add(row(again, { values: new Float32Array(256).fill(again) }));
    const after = store.query({ flag: 'F', reduced: true });
    expect(after.rows.map(item => item.step)).toEqual(before.rows.map(item => item.step));
    expect(after.kept?.bytes).toBe(before.kept?.bytes);
  });

  it('keeps the newest row even when it alone is larger than the bound', () => {
    const store = new TensorStore(10);
    store.add(row(1));
    store.add(row(2));
    expect(steps(store, { flag: 'F' })).toEqual([2]);
  });

  it('is as fast after an hour as at the start', () => {
    const store = new TensorStore(2000 * 616);
    const time = (from: number): number => {
      const start = performance.now();
      for (let step = from; step < from + 6000; step += 1) {
        store.add(row(step));
      }
      return performance.now() - start;
    };
    const first = time(1);
    time(6001);
    expect(time(12_001)).toBeLessThan(first * 5 + 200);
    expect(store.bytes).toBeLessThanOrEqual(2000 * 616);
    expect(store.steps('F').length).toBeGreaterThan(500);
  });
});

describe('the log of evicted rows', () => {
  it('counts exactly over whole blocks and stays small', () => {
    const log = new EvictedLog();
    for (let step = 0; step < 100_000; step += 1) {
      log.add(step);
      log.add(step);
    }
    expect(log.total).toBe(200_000);
    expect(log.count(-Infinity, Infinity)).toBe(200_000);
    expect(log.count(200_000, 300_000)).toBe(0);
    expect(log.count(0, 49_999)).toBeGreaterThanOrEqual(100_000);
    expect(log.count(0, 49_999)).toBeLessThan(102_000);
  });
});

describe('the row cache', () => {
  const load = (value: string, calls: string[]) => async (): Promise<string> => {
    calls.push(value);
    return value;
  };

  it('asks once for equal questions and again when the answer had to go', async () => {
    const calls: string[] = [];
    const cache = new RowCache<string>(10, value => value.length);
    await Promise.all([cache.get('a', load('aaaa', calls)), cache.get('a', load('aaaa', calls))]);
    await cache.get('b', load('bbbb', calls));
    await cache.get('a', load('aaaa', calls));
    await cache.get('c', load('cccc', calls));
    expect(calls).toEqual(['aaaa', 'bbbb', 'cccc']);
    expect(cache.bytes).toBeLessThanOrEqual(10);
    await cache.get('a', load('aaaa', calls));
    await cache.get('b', load('bbbb', calls));
    expect(calls).toEqual(['aaaa', 'bbbb', 'cccc', 'bbbb']);
  });

  it('aborts the request only when nobody waits any more', async () => {
    const cache = new RowCache<string>(10, value => value.length);
    let inner: AbortSignal | undefined;
    let answer: (value: string) => void = () => undefined;
    const slow = (signal: AbortSignal): Promise<string> => {
      inner = signal;
      return new Promise((resolve, reject) => {
        answer = resolve;
        signal.addEventListener('abort', () => reject(signal.reason));
      });
    };
    const [one, two] = [new AbortController(), new AbortController()];
    const first = cache.get('a', slow, one.signal);
    const second = cache.get('a', slow, two.signal);
    one.abort();
    await expect(first).rejects.toMatchObject({ name: 'AbortError' });
    expect(inner?.aborted).toBe(false);
    answer('x');
    expect(await second).toBe('x');
    const third = cache.get('b', slow, two.signal);
    two.abort();
    await expect(third).rejects.toMatchObject({ name: 'AbortError' });
    expect(inner?.aborted).toBe(true);
    await expect(cache.get('b', slow, two.signal)).rejects.toMatchObject({ name: 'AbortError' });
  });

  it('does not remember a failure', async () => {
    const cache = new RowCache<string>(10, value => value.length);
    await expect(cache.get('a', () => Promise.reject(new Error('down')))).rejects.toThrow('down');
    expect(await cache.get('a', async () => 'up')).toBe('up');
  });
});

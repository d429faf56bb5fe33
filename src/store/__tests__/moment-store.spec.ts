/** @jest-environment ./jest.environment.node.js */
import { decodeFrame, encodeFrame, frameTable, type StreamTable } from '../../protocol';
import { MomentStore } from '..';
import { GRADIENT_STAGES } from '../row-moments';

interface IRow {
  step: number;
  stat?: string;
  name?: string;
  rank?: number;
  samples?: number;
  mean?: number;
  nans?: number;
  infs?: number;
}

function frame(rows: readonly IRow[]): StreamTable {
  const fill = (value: number): number[] => rows.map(() => value);
  const columns = {
    step: rows.map(row => row.step),
    samples: rows.map(row => row.samples ?? -1),
    stat: rows.map(row => row.stat ?? 'grad'),
    name: rows.map(row => row.name ?? 'w'),
    rank: rows.map(row => row.rank ?? 0),
    stage: fill(0),
    count: fill(2),
    mean: rows.map(row => row.mean ?? row.step),
    m2: fill(0.5),
    m3: fill(0.25),
    m4: fill(0.125),
    min: fill(-1),
    max: fill(NaN),
    nan_count: rows.map(row => row.nans ?? 0),
    inf_count: rows.map(row => row.infs ?? 0),
    negative_inf_count: fill(0),
    near_zero_count: fill(1),
    rounding: fill(2 ** -24),
    gradient_stage: rows.map((_, at) => ['pre_step', 'a word of others'][at] ?? ''),
    loss_scale: fill(NaN)
  };
  return frameTable(decodeFrame(encodeFrame('moments', columns, { step: 1 })));
}

const series = (steps: readonly number[], more: Omit<IRow, 'step'> = {}): IRow[] =>
  steps.map(step => ({ step, ...more }));
const upTo = (last: number): number[] => Array.from({ length: last }, (_, at) => at + 1);

describe('the store of moments', () => {
  it('answers rows by stat and steps, names coded once, every column as it came', () => {
    const store = new MomentStore();
    expect(
      store.append(
        frame([
          { step: 4, name: 'b', infs: 3 },
          { step: 4, name: 'a', samples: 64 }
        ]),
        false
      )
    ).toEqual([4, 4]);
    expect(store.append(frame([{ step: 5, name: 'a', stat: 'param' }]), false)).toEqual([5, 5]);
    const rows = store.rows({ stats: ['grad'] });
    expect(rows.names).toEqual(['b', 'a']);
    expect(rows).toMatchObject({
      stat: ['grad', 'grad'],
      nameId: Int32Array.of(0, 1),
      step: Float64Array.of(4, 4),
      samples: Float64Array.of(-1, 64),
      rank: Int32Array.of(0, 0),
      stage: Int32Array.of(0, 0),
      gradientStage: Int32Array.of(GRADIENT_STAGES.indexOf('pre_step'), 0),
      count: Float64Array.of(2, 2),
      mean: Float64Array.of(4, 4),
      m2: Float64Array.of(0.5, 0.5),
      m3: Float64Array.of(0.25, 0.25),
      m4: Float64Array.of(0.125, 0.125),
      min: Float64Array.of(-1, -1),
      max: Float64Array.of(NaN, NaN),
      nanCount: Float64Array.of(0, 0),
      infCount: Float64Array.of(3, 0),
      nearZeroCount: Float64Array.of(1, 1),
      rounding: Float64Array.of(2 ** -24, 2 ** -24),
      lossScale: Float64Array.of(NaN, NaN)
    });
    expect(store.rows({ stats: ['dgrad'] }).step).toHaveLength(0);
    expect(Array.from(store.rows({ stats: ['grad', 'param'], steps: [5, 9] }).nameId)).toEqual([1]);
  });

  it('says what there is, with a new version whenever there is more', () => {
    const store = new MomentStore();
    store.append(frame(series([3, 5])), false);
    const index = store.index();
    expect(index).toMatchObject({
      stats: [{ stat: 'grad', rows: 2, first: 3, last: 5, steps: 2 }],
      names: ['w'],
      samples: false,
      warnings: []
    });
    expect(store.index()).toBe(index);
    store.append(frame([{ step: 6, samples: 1, name: 'v' }]), false);
    expect(store.index().version).not.toBe(index.version);
    expect(store.index()).toMatchObject({ samples: true, names: ['w', 'v'] });
    expect(index.names).toEqual(['w']);
    store.clear();
    expect(store.index()).toMatchObject({ stats: [], names: [] });
  });

  it('orders rows that come late by step, and joins stats by step', () => {
    const store = new MomentStore();
    store.append(frame(series([2, 6])), false);
    store.append(frame([{ step: 4 }, { step: 1 }, { step: 3, stat: 'param' }]), false);
    expect(Array.from(store.rows({ stats: ['grad'] }).mean)).toEqual([1, 2, 4, 6]);
    const both = store.rows({ stats: ['grad', 'param'], steps: [2, 4] });
    expect(both.stat).toEqual(['grad', 'param', 'grad']);
    expect(Array.from(both.step)).toEqual([2, 3, 4]);
  });

  it('leaves out rows that come again, by name and rank', () => {
    const store = new MomentStore();
    store.append(frame(series([1, 2])), false);
    expect(store.append(frame(series([1, 2])), true)).toBeNull();
    expect(
      store.append(frame([...series([2, 3]), { step: 2, rank: 1 }, { step: 2, name: 'v' }]), true)
    ).toEqual([2, 3]);
    expect(store.length).toBe(5);
    expect(store.append(frame([{ step: 9, stat: 'mood' }]), false)).toBeNull();
  });

  it('gives up whole steps of the older half, and never one that stands out', () => {
    const store = new MomentStore(300);
    const rows = upTo(160).flatMap(step => [
      { step, name: 'large', mean: 100 + (step === 21 ? 50 : Math.sin(step)) },
      {
        step,
        name: 'small',
        mean: step === 30 ? 0.5 : 0.01,
        nans: step === 44 ? 1 : 0,
        infs: step === 53 ? 1 : 0
      }
    ]);
    for (let at = 0; at < rows.length; at += 20) {
      store.append(frame(rows.slice(at, at + 20)), false);
    }
    const kept = store.rows({ stats: ['grad'] });
    expect(store.length).toBeLessThanOrEqual(300);
    const steps = [...new Set(kept.step)];
    expect(kept.step).toHaveLength(2 * steps.length);
    expect(steps).toEqual(expect.arrayContaining([1, 21, 30, 44, 53, ...upTo(160).slice(100)]));
    expect(store.thinned).toBe(160 - steps.length);
    expect(store.index().warnings).toEqual([
      expect.stringMatching(/^Up to step \d+, \d+ steps of grad were given up here to stay within memory/)
    ]);
  });

  it('stays within its bound where every step stands out, and keeps a single step whole', () => {
    const store = new MomentStore(50);
    for (let step = 1; step <= 200; step += 8) {
      store.append(
        frame(
          series(
            upTo(8).map(at => step - 1 + at),
            { nans: 1 }
          )
        ),
        false
      );
    }
    expect(store.length).toBeLessThanOrEqual(50);
    const [first, ...others] = store.rows({ stats: ['grad'] }).step;
    expect([first, others[others.length - 1]]).toEqual([1, 200]);
    const wide = new MomentStore(10);
    wide.append(frame(upTo(40).map(at => ({ step: 1, name: `w${at}` }))), false);
    expect(wide.length).toBe(40);
  });
});

/** @jest-environment ./jest.environment.node.js */
import { readFileSync } from 'fs';
import fc from 'fast-check';
import MERGE from '../../../protocol/fixtures/moments/merge.json';
import { decodeFrame, MOMENT_STATISTICS } from '../../protocol';
import { groupMoments } from '..';
import { aq, moments } from '../arquero';
import { RowSource, type IRow } from './moment-rows';

type Table = ReturnType<typeof aq.table>;

const ALL = [...MOMENT_STATISTICS, 'count'] as const;

/** Rows as an arquero table has them. */
function tableOf(rows: readonly IRow[]): Table {
  const column = (read: (row: IRow) => unknown): unknown[] => rows.map(read);
  return aq.table({
    name: column(row => row.name ?? 'w'),
    step: column(row => row.step ?? 1),
    count: column(row => row.count ?? 1),
    mean: column(row => row.mean ?? 0),
    m2: column(row => row.m2 ?? 0),
    m3: column(row => row.m3 ?? 0),
    m4: column(row => row.m4 ?? 0),
    min: column(row => row.min ?? NaN),
    max: column(row => row.max ?? NaN),
    nan_count: column(row => row.nanCount ?? 0),
    inf_count: column(row => row.infCount ?? 0),
    near_zero_count: column(row => row.nearZeroCount ?? 0),
    rounding: column(row => row.rounding ?? 0)
  });
}

const everything = (): Record<string, string> =>
  Object.fromEntries([
    ...ALL.map(name => [name, moments[name]()]),
    ...MOMENT_STATISTICS.map(name => [`${name}_error`, moments.error(name)])
  ]);

/** The same rows in arquero and in the pass over typed arrays: the same numbers, to the last bit. */
async function expectSame(rows: readonly IRow[]): Promise<void> {
  const found = tableOf(rows).groupby('name', 'step').rollup(everything()).orderby('name', 'step').reify();
  for (const statistic of MOMENT_STATISTICS) {
    const wanted = await groupMoments(new RowSource(rows), { stat: 'grad', statistic, by: ['name'] });
    expect(found.array('name')).toEqual(Array.from(wanted.group, group => wanted.keys[group]?.[0]));
    expect(found.array('step')).toEqual(Array.from(wanted.step));
    expect(found.array('count')).toEqual(Array.from(wanted.count));
    expect(found.array(statistic)).toEqual(Array.from(wanted.value));
    expect(found.array(`${statistic}_error`)).toEqual(Array.from(wanted.error));
  }
}

describe('moments in arquero', () => {
  it.each(MERGE)('merges the golden case: $doc', ({ rows, expected }) => {
    const found = aq
      .from(rows.map(row => ({ ...row, mean: Number(row.mean), min: Number(row.min), max: Number(row.max) })))
      .groupby('group')
      .rollup({
        ...everything(),
        nan_count: moments.nan_count(),
        inf_count: moments.inf_count(),
        near_zero_count: moments.near_zero_count()
      })
      .reify();
    const names = [...ALL, 'nan_count', 'inf_count', 'near_zero_count'] as const;
    expected.forEach((each, at) => {
      for (const name of names) {
        const wanted = Number(name === 'nonfinite' ? each.nan_count + each.inf_count : each[name]);
        const value = Number(found.get(name, at));
        expect(Number.isNaN(value)).toBe(Number.isNaN(wanted));
        expect(Math.abs(value - wanted)).not.toBeGreaterThan(1e-12 * Math.abs(wanted));
      }
    });
  });

  it('merges any rows to the last bit as the explorer does: extreme means, NaN, infinite sums, empty tensors, raw sums', async () => {
    const number = fc.oneof(
      // Which zero it is, nobody asks.
      fc.double({ min: -1e150, max: 1e150, noNaN: true }).map(value => value + 0),
      fc.constantFrom(0, 1e12, 1e12 + 1, -1e-300, NaN, Infinity, -Infinity)
    );
    const positive = fc.oneof(
      fc.double({ min: 0, max: 1e100, noNaN: true }),
      fc.constantFrom(0, NaN, Infinity)
    );
    // Raw sums that hold a NaN have no spread.
    const spoiled = (row: IRow): IRow =>
      Number.isNaN(row.mean) ? { ...row, m2: NaN, m3: NaN, m4: NaN } : row;
    const row = fc
      .record({
        name: fc.constantFrom('a', 'b', 'c'),
        step: fc.integer({ min: 1, max: 3 }),
        count: fc.constantFrom(0, 0, 1, 4, 1e9, 2 ** 53),
        mean: number,
        m2: positive,
        m3: number,
        m4: positive,
        min: number,
        max: number,
        nanCount: fc.constantFrom(0, 0, 3, NaN),
        infCount: fc.constantFrom(0, 0, 1),
        nearZeroCount: fc.constantFrom(0, 0, 2, NaN),
        rounding: fc.constantFrom(0, 0, 2 ** -24)
      })
      .map(spoiled);
    await fc.assert(
      fc.asyncProperty(fc.array(row, { minLength: 1, maxLength: 30 }), async rows => {
        await expectSame([...rows].sort((a, b) => (a.step ?? 0) - (b.step ?? 0)));
      }),
      { numRuns: 25 }
    );
  });

  it('merges what was merged before as it merges the rows themselves', () => {
    const rows = Array.from({ length: 240 }, (_, at): IRow => ({
      name: `layers.${at % 6}.w`,
      step: 1 + Math.floor(at / 24),
      count: 1 + (at % 7),
      mean: Math.sin(at) * 10 ** (at % 5),
      m2: 1 + (at % 3),
      m3: Math.cos(at),
      m4: 9,
      min: -at,
      max: at,
      nanCount: at % 11 === 0 ? 2 : 0
    }));
    const wanted = tableOf(rows).groupby('step').rollup(everything());
    const found = tableOf(rows)
      .groupby('name', 'step')
      .rollup(moments.sufficient())
      .groupby('step')
      .rollup({ ...Object.fromEntries(ALL.map(name => [name, moments[name]()])) });
    for (const name of ALL) {
      Array.from(found.array(name) as Iterable<number>).forEach((value, at) => {
        const other = Number(wanted.get(name, at));
        expect(Math.abs(value - other)).not.toBeGreaterThan(1e-9 * Math.abs(other));
      });
    }
  });

  it('has no statistics where there is no data: none of them is 0', () => {
    const none = tableOf([]).rollup(everything());
    expect(none.get('count', 0)).toBe(0);
    expect(none.get('nonfinite', 0)).toBe(0);
    expect(none.get('kurtosis', 0)).toBeNaN();
    expect(none.get('l2', 0)).toBeNaN();
    const empty = tableOf([{ count: 0, mean: NaN, nanCount: 5 }]).rollup(everything());
    expect(empty.get('mean', 0)).toBeNaN();
    expect(empty.get('nonfinite', 0)).toBe(5);
  });

  it('merges what a window holds', () => {
    const table = tableOf(
      Array.from({ length: 9 }, (_, at) => ({ step: at + 1, mean: at ** 2, count: 2, m2: at }))
    );
    const rolled = table
      .orderby('step')
      .derive({ last3: aq.rolling(moments.std(), [-2, 0]) })
      .array('last3');
    const sliced = Array.from({ length: 9 }, (_, at) =>
      table
        .slice(Math.max(0, at - 2), at + 1)
        .rollup({ std: moments.std() })
        .get('std', 0)
    );
    expect(rolled).toEqual(sliced);
  });

  it('reads a frame of the wire, and the layer of a tensor out of its name', () => {
    const frame = decodeFrame(readFileSync('protocol/fixtures/frames/moments.frame'));
    const found = aq
      .fromArrow(frame.body)
      .derive(moments.names('layer', 'role'))
      .groupby('stat', 'rank', 'layer', 'step')
      .rollup({ rms: moments.rms(), kurtosis: moments.kurtosis() });
    expect(found.objects()[0]).toEqual({
      stat: 'param',
      rank: 0,
      layer: 0,
      step: 20,
      rms: Math.sqrt(7.5),
      kurtosis: 1.64
    });
  });

  it('says which column is missing', () => {
    expect(() => aq.table({ count: [1], mean: [2] }).rollup({ std: moments.std() })).toThrow(/d\.m2/);
  });
});

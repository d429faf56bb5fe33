/** @jest-environment ./jest.environment.node.js */
import type { MomentKey } from '../../store';
import GROUPS from '../../../protocol/fixtures/moments/groups.json';
import MERGE from '../../../protocol/fixtures/moments/merge.json';
import { MOMENT_STATISTICS } from '../../protocol';
import { gradientStage, PRE_STEP, CLIPPED, SCALED } from '../../store/row-moments';
import { AggregateError, groupMoments } from '..';
import { RowSource, lines, type IRow } from './moment-rows';
import type { MomentGroupsRequest } from '../../protocol/requests.generated';

/** A case of `groups.json`: a question as the endpoint takes it. */
interface IGroupCase {
  readonly doc: string;
  readonly rows: readonly (IRow & { readonly nan_count: number })[];
  readonly query: Partial<MomentGroupsRequest>;
  readonly refused?: string;
  readonly expected?: {
    readonly keys: readonly MomentKey[];
    /** Group, step and value. */
    readonly points: readonly (readonly number[])[];
    readonly groups: number;
    readonly steps: number;
  };
}

const L2: MomentGroupsRequest = { stat: 'grad', statistic: 'l2', by: ['layer'] };

const ask = async (
  rows: readonly IRow[],
  query: Partial<MomentGroupsRequest>
): ReturnType<typeof groupMoments> => groupMoments(new RowSource(rows), { ...L2, ...query });

/** A tensor of which every value is `mean`, 4 of them. */
const flat = (name: string, mean: number, more: IRow = {}): IRow => ({ name, mean, count: 4, ...more });

describe('merging moments', () => {
  const number = (value: unknown): number => Number(value);

  it.each(MERGE)('$doc', async ({ rows, expected }) => {
    const all = rows.map(row => ({
      name: row.group,
      count: row.count,
      mean: number(row.mean),
      m2: number(row.m2),
      m3: number(row.m3),
      m4: number(row.m4),
      min: number(row.min),
      max: number(row.max),
      nanCount: number(row.nan_count),
      infCount: number(row.inf_count),
      nearZeroCount: number(row.near_zero_count),
      rounding: row.rounding
    }));
    for (const statistic of MOMENT_STATISTICS) {
      const found = await ask(all, { statistic, by: ['name'] });
      expect(found.keys).toEqual(expected.map(each => [each.group]));
      expected.forEach((each, group) => {
        const wanted = statistic === 'nonfinite' ? each.nan_count + each.inf_count : number(each[statistic]);
        const value = found.value[group] ?? 0;
        expect(Math.abs(value - wanted)).not.toBeGreaterThan(1e-12 * Math.abs(wanted));
        expect(Number.isNaN(value)).toBe(Number.isNaN(wanted));
        expect(found.count[group]).toBe(each.count);
        expect(found.nonFinite[group]).toBe(each.nan_count + each.inf_count);
        expect(found.error[group]).toBe(0);
      });
    }
  });
});

describe('the golden cases of groups', () => {
  it.each(GROUPS as readonly IGroupCase[])('$doc', async ({ rows, query, expected, refused }) => {
    const all = rows.map(({ nan_count: nanCount, ...row }) => ({ ...row, nanCount }));
    const asked = ask(all, { stat: 'grad', ...query });
    if (expected === undefined) {
      await expect(asked).rejects.toMatchObject({ name: 'AggregateError', code: refused });
      return;
    }
    const found = await asked;
    expect(found.keys).toEqual(expected.keys);
    expect(Array.from(found.group, (group, row) => [group, found.step[row]])).toEqual(
      expected.points.map(([group, step]) => [group, step])
    );
    expected.points.forEach(([, , value = NaN], row) => expect(found.value[row]).toBeCloseTo(value, 12));
    expect([found.groupsTotal, found.stepsTotal]).toEqual([expected.groups, expected.steps]);
  });
});

describe('grouping', () => {
  const rows = [
    flat('decoder.layers.10.mlp.weight', 3, { step: 1, rank: 1, stage: 1 }),
    flat('decoder.layers.2.mlp.weight', 1, { step: 1, rank: 0, stage: 0, samples: 64 }),
    flat('decoder.layers.2.attn.weight', 2, { step: 2, rank: 0, stage: 0 }),
    flat('decoder.layers.10.mlp.weight', -4, { step: 2, rank: 1, stage: 1 }),
    flat('embedding.weight', 5, { step: 2, rank: -1 })
  ];

  it('has one row for each step of each group, groups in natural order and null last', async () => {
    const found = await ask(rows, {});
    expect(found.keys).toEqual([[2], [10], [null]]);
    expect(Array.from(found.group)).toEqual([0, 0, 1, 1, 2]);
    expect(Array.from(found.step)).toEqual([1, 2, 1, 2, 2]);
    expect(Array.from(found.value)).toEqual([2, 4, 6, 8, 10]);
    expect(Array.from(found.count)).toEqual([4, 4, 4, 4, 4]);
    expect(Array.from(found.samples)).toEqual([64, -1, 64, -1, -1]);
    expect([found.groupsTotal, found.stepsTotal]).toEqual([3, 2]);
  });

  it('takes any columns together', async () => {
    expect(lines(await ask(rows, { by: [] }))).toEqual({
      total: { 1: Math.sqrt(4 * 10), 2: Math.sqrt(4 * 45) }
    });
    expect(lines(await ask(rows, { by: ['stage', 'family', 'rank'], statistic: 'mean' }))).toEqual({
      '0 | attn | 0': { 2: 2 },
      '0 | mlp | 0': { 1: 1 },
      '1 | mlp | 1': { 1: 3, 2: -4 },
      'null | embedding | null': { 2: 5 }
    });
    const captured = await ask(rows, {
      by: ['capture'],
      pattern: 'layers\\.(?P<layer>\\d+)\\.(mlp|attn)',
      statistic: 'mean'
    });
    expect(captured.keys).toEqual([['2.attn'], ['2.mlp'], ['10.mlp']]);
    expect((await ask(rows, { by: ['capture'], pattern: 'mlp|attn' })).keys).toEqual([['attn'], ['mlp']]);
  });

  it('filters by names, numbers, words and steps', async () => {
    const keys = async (query: Partial<MomentGroupsRequest>): Promise<unknown> =>
      (await ask(rows, { by: ['name'], ...query })).keys.flat();
    expect(await keys({ where: { layer: '0-3' } })).toEqual([
      'decoder.layers.2.attn.weight',
      'decoder.layers.2.mlp.weight'
    ]);
    expect(await keys({ where: { layer: 'all', family: ['embedding'] } })).toEqual(['embedding.weight']);
    expect(await keys({ where: { name: '^emb' } })).toEqual(['embedding.weight']);
    expect(await keys({ where: { rank: '1,5' } })).toEqual(['decoder.layers.10.mlp.weight']);
    expect(await keys({ where: { stage: '0' }, steps: [2, 2] })).toEqual(['decoder.layers.2.attn.weight']);
    expect(await keys({ steps: [3, 9] })).toEqual([]);
  });

  it('finds the same groups where steps and groups are few and far between', async () => {
    const sparse = Array.from({ length: 600 }, (_, at) =>
      flat(`layers.${at}.w`, at, { step: 1 + at * 1000 })
    );
    const found = await ask(sparse, { statistic: 'mean' });
    expect(found.keys).toHaveLength(600);
    expect(Array.from(found.value)).toEqual(sparse.map(row => row.mean));
    expect(Array.from(found.step)).toEqual(sparse.map(row => row.step));
  });

  it('marks gradients that may hold an unknown loss scale', async () => {
    const found = await ask([...rows, flat('layers.2.b', 1, { step: 3, lossScale: NaN })], {});
    expect(Array.from(found.scaled)).toEqual([0, 0, 1, 0, 0, 0]);
  });

  it('marks gradients that may be clipped, beside the scale', async () => {
    const doubtful = [
      flat('layers.2.b', 1, { step: 3, lossScale: NaN }),
      flat('layers.2.c', 1, { step: 3, gradientStage: PRE_STEP }),
      flat('layers.9.c', 1, { step: 3, gradientStage: gradientStage('pre_clip') })
    ];
    expect(Array.from((await ask(doubtful, { by: [] })).scaled)).toEqual([SCALED | CLIPPED]);
    expect(Array.from((await ask(doubtful, { by: ['name'] })).scaled)).toEqual([SCALED, CLIPPED, 0]);
  });

  it.each([
    [{ by: ['capture'] as const }, /needs a pattern/],
    [{ where: { layer: '3-1' } }, /layer must be .*ranges such as/],
    [{ where: { rank: 'first' } }, /rank must be .*ranges such as/],
    [{ where: { name: '(' } }, /no regular expression/]
  ])('refuses %j in words', async (query, words) => {
    await expect(ask(rows, query)).rejects.toThrow(words);
    await expect(ask(rows, query)).rejects.toBeInstanceOf(AggregateError);
  });
});

describe('inputs and outputs', () => {
  const rows = ['input0', 'output0'].flatMap(tail =>
    [0, 1].map(layer =>
      flat(`layers.${layer}.mlp/${tail}`, tail === 'input0' ? 2 : 6 + layer, { stat: 'activation' })
    )
  );
  const query = { stat: 'activation', statistic: 'rms' } as const;

  it('do not enter one group unless that is allowed', async () => {
    const refused = await ask(rows, query).catch((error: unknown) => error);
    expect(refused).toMatchObject({ name: 'AggregateError', code: 'mixed' });
    expect(String(refused)).toMatch(/group 0 would hold both inputs and outputs.*Choose one role/);
    await expect(ask(rows, { ...query, by: [] })).rejects.toThrow(/^The total/);
    expect(lines(await ask(rows, { ...query, mixed: true }))[0]).toEqual({ 1: Math.sqrt((4 + 36) / 2) });
    expect(lines(await ask(rows, { ...query, where: { role: ['input'] } }))[1]).toEqual({ 1: 2 });
    expect((await ask(rows, { ...query, by: ['role'] })).keys).toEqual([['input'], ['output']]);
    const residual = rows.map(row => ({ ...row, stat: 'residual' as const }));
    expect((await ask(residual, { ...query, stat: 'residual', by: [] })).keys).toEqual([[]]);
  });

  it('make the gain of a module, backward the other way round', async () => {
    expect(lines(await ask(rows, { ...query, ratio: 'gain', by: ['name'] }))).toEqual({
      'layers.0.mlp': { 1: 3 },
      'layers.1.mlp': { 1: 3.5 }
    });
    const back = rows.map(row => ({ ...row, stat: 'dgrad' as const }));
    expect(
      lines(await ask(back, { ...query, stat: 'dgrad', ratio: 'gain', where: { role: ['output'] } }))
    ).toEqual({
      0: { 1: 1 / 3 },
      1: { 1: 2 / 7 }
    });
    await expect(ask(rows, { ...query, stat: 'param', ratio: 'gain' })).rejects.toThrow(
      /Choose activation or dgrad/
    );
  });
});

describe('gradients over parameters', () => {
  it('are of names and steps that have both', async () => {
    const rows = [
      flat('layers.0.a', 2, { step: 1 }),
      flat('layers.0.b', 100, { step: 1 }),
      flat('layers.0.a', 2, { step: 2 }),
      flat('layers.0.a', 8, { step: 1, stat: 'param' }),
      flat('layers.1.a', 8, { step: 1, stat: 'param' }),
      flat('layers.0.b', 8, { step: 3, stat: 'param' })
    ];
    expect(lines(await ask(rows, { ratio: 'grad_to_param' }))).toEqual({ 0: { 1: 0.25 } });
    // Of two ranks' parameters the filter leaves one, and so of the gradients.
    const ranks = rows.map(row => ({ ...row, rank: row.name === 'layers.0.a' ? 1 : 0 }));
    const two = [...ranks, flat('layers.0.b', 50, { step: 1, stat: 'param', rank: 3 })];
    expect(lines(await ask(two, { ratio: 'grad_to_param', where: { rank: '0-1' } }))).toEqual({
      0: { 1: 0.25 }
    });
    expect(lines(await ask(rows, { ratio: 'grad_to_param', stat: 'param', by: [] }))).toEqual({
      total: { 1: 0.25 }
    });
  });
});

describe('rounding of raw sums', () => {
  it('bounds what float32 sums of values far from zero leave of each statistic', async () => {
    const values = Float64Array.from(
      { length: 4000 },
      (_, at) => 300 + Math.sin(at * at) * 1.7 + Math.cos(at)
    );
    const sums = [0, 1, 2, 3, 4].map(power => values.reduce((sum, value) => sum + value ** power, 0));
    const [n = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0] = sums.map(Math.fround);
    const mean = s1 / n;
    const raw = {
      count: n,
      mean,
      m2: s2 - n * mean ** 2,
      m3: s3 - 3 * mean * s2 + 2 * n * mean ** 3,
      m4: s4 - 4 * mean * s3 + 6 * mean ** 2 * s2 - 3 * n * mean ** 4,
      rounding: 2 ** -24
    };
    const exact = sums[1] === undefined ? 0 : sums[1] / 4000;
    const central = [2, 3, 4].map(power => values.reduce((sum, value) => sum + (value - exact) ** power, 0));
    const [m2 = 0, m3 = 0, m4 = 0] = central;
    const truth = { count: 4000, mean: exact, m2, m3, m4 };
    for (const statistic of ['mean', 'variance', 'std', 'l2', 'rms', 'skewness', 'kurtosis'] as const) {
      const [of, from] = await Promise.all([ask([raw], { statistic }), ask([truth], { statistic })]);
      const off = Math.abs((of.value[0] ?? 0) - (from.value[0] ?? 0));
      expect(off).toBeLessThanOrEqual(of.error[0] ?? 0);
      expect(of.error[0]).toBeGreaterThan(0);
      expect(from.error[0]).toBe(0);
    }
    const none = await ask([{ ...raw, m2: 0 }], { statistic: 'skewness' });
    expect([none.value[0], none.error[0]]).toEqual([NaN, Infinity]);
  });
});

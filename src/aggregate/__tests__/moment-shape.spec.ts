/** @jest-environment ./jest.environment.node.js */
import type { IMomentGroups } from '../../store';
import { MomentTable, decimateGroups, groupTables, shapeGroups, topGroups } from '..';
import { lines, momentRows, type IRow } from './moment-rows';
import type { MomentGroupsRequest } from '../../protocol/requests.generated';

const QUESTION: MomentGroupsRequest = { stat: 'grad', statistic: 'mean', by: ['name'] };

function groupsOf(rows: readonly IRow[], question: Partial<MomentGroupsRequest> = {}): IMomentGroups {
  const table = new MomentTable('grad');
  table.append(momentRows([...rows].sort((a, b) => (a.step ?? 1) - (b.step ?? 1))));
  return groupTables([table], { ...QUESTION, ...question });
}

const line = (name: string, values: readonly number[], more: IRow = {}): IRow[] =>
  values.map((mean, at) => ({ name, step: at + 1, mean, ...more }));

const shaped = (rows: readonly IRow[], question: Partial<MomentGroupsRequest>): ReturnType<typeof lines> =>
  lines(shapeGroups(groupsOf(rows), { ...QUESTION, ...question }));

describe('what is shown', () => {
  const rows = [...line('a', [4, 6, 2]), ...line('b', [-2, -3, -1]), ...line('zero', [0, 5, 0])];

  it('is the value against the first one of the whole run, also where steps are cut off', () => {
    expect(shaped(rows, { show: 'relative' })).toEqual({
      a: { 1: 1, 2: 1.5, 3: 0.5 },
      b: { 1: 1, 2: 1.5, 3: 0.5 },
      zero: { 1: NaN, 2: NaN, 3: NaN }
    });
    expect(shaped(rows, { show: 'delta', steps: [2, 3] })).toEqual({
      a: { 2: 2, 3: -2 },
      b: { 2: -1, 3: 1 },
      zero: { 2: 5, 3: 0 }
    });
    // More is positive, whatever the sign of the first value.
    expect(shaped(rows, { show: 'percent', steps: [2, 3] })).toMatchObject({
      a: { 2: 50, 3: -50 },
      b: { 2: -50, 3: 50 },
      zero: { 2: NaN }
    });
  });

  it('is against the first finite value where a series starts with none', () => {
    const late = line('a', [NaN, 4, 8]).map(row =>
      row.step === 1 ? { ...row, count: 0, nanCount: 3 } : row
    );
    expect(shaped(late, { show: 'relative' })).toEqual({ a: { 1: NaN, 2: 1, 3: 2 } });
  });

  it('is smoothed over every step before steps are cut off or left out', () => {
    const values = [8, 0, 0, 0, 100, 0];
    expect(shaped(line('a', values), { smoothing: 2, steps: [5, 6] })).toEqual({ a: { 5: 50, 6: 50 } });
    expect(shaped(line('a', values), { smoothing: 3, show: 'delta' }).a).toMatchObject({
      1: 0,
      2: -4,
      3: -16 / 3
    });
  });

  it('scales the bound of the rounding with the value', () => {
    const rough = line('a', [1000, 1001], { count: 5, m2: 5, rounding: 2 ** -24 });
    const error = (question: Partial<MomentGroupsRequest>): number =>
      shapeGroups(groupsOf(rough, { statistic: 'std' }), { ...QUESTION, statistic: 'std', ...question })
        .error[1] ?? 0;
    expect(error({})).toBeGreaterThan(0);
    expect(error({ show: 'delta' })).toBe(error({}));
    expect(error({ show: 'relative' })).toBeCloseTo(error({}), 12);
    expect(error({ show: 'percent' })).toBeCloseTo(100 * error({}), 9);
  });

  it('counts the groups and steps that there were', () => {
    const all = shapeGroups(groupsOf(rows), { ...QUESTION, series: 1, show: 'delta', steps: [2, 3] });
    expect(all.keys).toEqual([['a']]);
    expect([all.groupsTotal, all.stepsTotal]).toEqual([3, 2]);
  });
});

describe('the greatest groups', () => {
  const rows = [
    ...line('small', [1, 1]),
    ...line('negative', [-9, 1]),
    ...line('large', [5, 1]),
    ...line('bad', [0.1, 0.1]).map((row, at) => ({ ...row, infCount: at })),
    ...line('unknown', [0.2, 0.2], { nanCount: NaN }),
    ...line('nothing', [NaN], { count: 0 })
  ];

  it('are those with values that are not finite, then those of the greatest magnitude', () => {
    const keys = (series: number): string[] =>
      topGroups(groupsOf(rows), series).keys.map(([name]) => String(name));
    expect(keys(2)).toEqual(['bad', 'unknown']);
    expect(keys(3)).toEqual(['bad', 'negative', 'unknown']);
    expect(keys(5)).not.toContain('nothing');
    expect(topGroups(groupsOf(rows), 2)).toMatchObject({ groupsTotal: 6, stepsTotal: 2 });
  });

  it('are chosen by the steps that are asked for', () => {
    const late = shapeGroups(groupsOf([...line('a', [100, 1]), ...line('b', [1, 2])]), {
      ...QUESTION,
      series: 1,
      steps: [2, 2],
      show: 'relative'
    });
    expect(lines(late)).toEqual({ b: { 2: 2 } });
  });
});

describe('steps that a line does not need', () => {
  const length = 4000;
  const values = Array.from({ length }, (_, at) => Math.sin(at / 100));
  values[1401] = 50;
  values[1403] = -50;
  const rows = line('a', values).map(row =>
    row.step === 1800 ? { ...row, nanCount: 1 } : row.step === 1900 ? { ...row, mean: NaN } : row
  );

  const groups = groupsOf(rows);

  it.each([40, 400, 2000])('are left out, and at %i points no spike and no non-finite one is', points => {
    const thin = decimateGroups(groups, points);
    expect(thin.step.length).toBeLessThanOrEqual(points + 8);
    const steps = Array.from(thin.step);
    expect(steps).toEqual([...steps].sort((a, b) => a - b));
    expect(steps).toEqual(expect.arrayContaining([1, 1402, 1404, 1800, 1900, length]));
    expect(thin.stepsTotal).toBe(length);
  });

  it('keep every non-finite step of a run that stays bad', () => {
    const bad = line('a', values, { infCount: 1 });
    expect(decimateGroups(groupsOf(bad), 10).step).toHaveLength(length);
  });

  it('stay where there are few', () => {
    const few = groupsOf(line('a', [1, 2, 3]));
    expect(decimateGroups(few, 3)).toBe(few);
  });
});

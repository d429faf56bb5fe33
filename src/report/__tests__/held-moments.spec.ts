/** @jest-environment ./jest.environment.node.js */

import { groupMoments } from '../../aggregate';
import type { IMomentGroups, IMomentSource } from '../../store/row-moments';
import { StoredMoments } from '../page-data';
import type { MomentGroupsRequest } from '../../protocol/requests.generated';
import { StoredRun } from '../stored-run';
import { detailOf } from './fake-reader';

const MANY = 1000;

const ASKED: MomentGroupsRequest = {
  stat: 'grad',
  statistic: 'l2',
  by: ['layer'],
  series: 50,
  points: 600
};

/** What a file answers that holds one answer of 40 groups: its first byte, or why there is none. */
async function answered(changes: Partial<MomentGroupsRequest>, asked = ASKED): Promise<number | string> {
  const index = { version: '1', stats: [], namesFrom: 0, names: [], samples: false, warnings: [] };
  const groups = [{ request: asked, groups: 40, steps: 9, bytes: Uint8Array.of(7) }];
  const held = new StoredMoments({ index, rows: new Map(), groups });
  return held.groups('r1', { ...ASKED, ...changes }).then(
    ({ bytes }) => bytes[0] ?? NaN,
    (reason: Error) => reason.message
  );
}

describe('groups that a file holds', () => {
  it('answer any width and any steps of those that were read', async () => {
    expect(await answered({ points: 30 })).toBe(7);
    expect(await answered({ steps: [2, 3] })).toBe(7);
    expect(await answered({}, { ...ASKED, steps: [2, 3] })).toMatch('does not hold the rows');
    expect(await answered({ steps: [2, 2] }, { ...ASKED, steps: [2, 3] })).toBe(7);
  });

  it('answer a download of all groups where all are there, and no other question', async () => {
    const { series: _, points: __, ...all } = ASKED;
    const none = { series: undefined, points: undefined };
    expect(await answered(none)).toBe(7);
    expect(await answered(none, { ...all, series: 39 })).toMatch('does not hold the rows');
    expect(await answered({ series: 40 })).toBe(7);
    expect(await answered({ series: 39 })).toMatch('does not hold the rows');
    expect(await answered({ by: [] })).toMatch('does not hold the rows');
    expect(await answered({ statistic: 'max' })).toMatch('does not hold the rows');
  });
});

it.each(['training', 'finished'] as const)(
  'is asked once what there is, however the run went on that was %s when the report was made',
  async state => {
    const index = { version: '1', stats: [], namesFrom: 0, names: [], samples: false, warnings: [] };
    const held = new StoredMoments({ index, rows: new Map(), groups: [] });
    let asked = 0;
    const moments = {
      index: () => (++asked < MANY ? held.index() : new Promise<never>(() => undefined)),
      rows: held.rows.bind(held),
      groups: held.groups.bind(held)
    };
    const detail = detailOf();
    const run = new StoredRun({
      ...{ id: 'r1', rows: [], asked: [], shapes: {}, scalars: null, moments },
      detail: { ...detail, status: { ...detail.status, state } }
    });
    await run.moments.index();
    // Whoever asks again and again leaves no time for this.
    await new Promise(resolve => setTimeout(resolve));
    expect(asked).toBe(1);
    run.dispose();
  }
);

it('leaves of an answer for more steps those that were asked for', async () => {
  const step = Float64Array.of(1, 2, 3, 1, 9, 2, 3);
  const group = Uint32Array.of(0, 0, 0, 1, 1, 2, 2);
  const held: IMomentGroups = {
    keys: [['a'], ['b'], ['c']],
    group,
    step,
    samples: step.map(each => 16 * each),
    value: step.map((each, at) => 10 * each + (group[at] ?? 0)),
    count: step.map(() => 5),
    nonFinite: step.map(() => 0),
    error: step.map(() => 0),
    scaled: new Uint8Array(step.length),
    groupsTotal: 3,
    stepsTotal: 4
  };
  const source: IMomentSource = {
    limitRows: 0,
    index: () => Promise.resolve({ version: '1', stats: [], names: [], samples: true, warnings: [] }),
    rows: () => Promise.resolve(null),
    groups: () => Promise.resolve(held)
  };
  const ask = (steps: MomentGroupsRequest['steps']): Promise<IMomentGroups> =>
    groupMoments(source, { stat: 'grad', statistic: 'l2', by: ['name'], steps: steps ?? null });
  expect(await ask(null)).toBe(held);
  const cut = await ask([2, 3]);
  expect(cut.keys).toEqual([['a'], ['c']]);
  expect([...cut.group]).toEqual([0, 0, 1, 1]);
  expect([...cut.value]).toEqual([20, 30, 22, 32]);
  expect([...cut.samples]).toEqual([32, 48, 32, 48]);
  expect([cut.scaled.length, cut.error.length, cut.count.length, cut.nonFinite.length]).toEqual([4, 4, 4, 4]);
  expect(cut.stepsTotal).toBe(2);
});

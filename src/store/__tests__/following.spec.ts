/** @jest-environment ./jest.environment.node.js */

import type { IMomentsIndex, IMomentsReader } from '../../client/run-reader';
import { ServerMoments } from '../server-moments';

const FIRST: IMomentsIndex = {
  version: '1',
  stats: [],
  namesFrom: 0,
  names: [],
  samples: false,
  warnings: []
};

/** Answers at once, however long it is asked to wait: with the same, that nothing is new, or that it reads. */
function reader(answer: Awaited<ReturnType<IMomentsReader['index']>>): IMomentsReader & { asked: number } {
  const never = (): Promise<never> => new Promise(() => undefined);
  return {
    asked: 0,
    index(_, since) {
      this.asked += 1;
      return this.asked > 1000 ? never() : Promise.resolve(since === null ? FIRST : answer);
    },
    rows: never,
    groups: never
  };
}

describe('following statistics', () => {
  it.each([
    ['the same again', FIRST],
    ['that nothing is new', null],
    ['that files are still read', { kind: 'reading', done: 1, total: 2 } as const]
  ])('takes no time while %s is answered at once', async (_, answer) => {
    jest.useFakeTimers();
    const api = reader(answer);
    const moments = new ServerMoments('r1', api, { name: () => 'r1', grows: true });
    await moments.index();
    await jest.advanceTimersByTimeAsync(0);
    expect(api.asked).toBe(2);
    await jest.advanceTimersByTimeAsync(10_000);
    expect(api.asked).toBeLessThanOrEqual(12);
    moments.dispose();
    expect(jest.getTimerCount()).toBe(0);
    jest.useRealTimers();
  });
});

describe('a question that a cluster answers', () => {
  const by: readonly [] = [];
  const request = { stat: 'grad', statistic: 'l2', by } as const;
  const readBy = { address: 'tcp://10.0.0.1:8786', workers: 4 };

  beforeEach(() => void jest.useFakeTimers());
  afterEach(() => void jest.useRealTimers());

  function cluster(): IMomentsReader & { asked: number; answer: (error: Error) => void } {
    let answer: (error: Error) => void = () => undefined;
    const held = new Promise<never>((_, reject) => (answer = reject));
    return {
      asked: 0,
      answer: error => answer(error),
      index: () => Promise.resolve({ ...FIRST, readBy }),
      rows: () => held,
      groups: () => held,
      tasks() {
        this.asked += 1;
        return Promise.resolve([this.asked, 20]);
      }
    };
  }

  it('tells every second how many tasks are done, and where, until its answer is there', async () => {
    const api = cluster();
    const moments = new ServerMoments('r1', api, { name: () => 'r1', grows: false });
    await moments.index();
    const told = jest.fn();
    moments.watchTasks(told);
    const asked = expect(moments.groups(request)).rejects.toThrow('scheduler');
    await jest.advanceTimersByTimeAsync(2500);
    expect(told.mock.calls).toEqual([
      [1, 20, readBy],
      [2, 20, readBy]
    ]);
    api.answer(new Error('scheduler'));
    await asked;
    await jest.advanceTimersByTimeAsync(5000);
    expect(api.asked).toBe(2);
    expect(moments.readBy).toBeNull();
    moments.dispose();
    expect(jest.getTimerCount()).toBe(0);
  });
});

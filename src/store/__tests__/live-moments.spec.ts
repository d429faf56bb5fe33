/** @jest-environment ./jest.environment.node.js */
import { byName } from '../../protocol/records';
import { LiveMoments, MomentStore, type IMomentRows, type ServerMoments } from '..';

const rows: IMomentRows = {
  stat: ['grad'],
  names: ['w'],
  nameId: Int32Array.of(0),
  rank: Int32Array.of(0),
  stage: Int32Array.of(0),
  gradientStage: Int32Array.of(0),
  ...byName(['step', 'samples', 'count', 'mean', 'm2', 'm3', 'm4', 'min', 'max'], () => Float64Array.of(1)),
  ...byName(['nanCount', 'infCount', 'nearZeroCount', 'rounding', 'lossScale'], () => Float64Array.of(0))
} as IMomentRows;

/** A recording of so many rows, and how often rows of it and its index were asked for. */
function recordingOf(count: number): {
  recording: ServerMoments;
  asked: () => number;
  indexed: () => number;
} {
  let asked = 0;
  let indexed = 0;
  const stats = [{ stat: 'grad', rows: count, first: 1, last: 1, steps: 1 }];
  const index = { version: '1', stats, names: ['w'], samples: false, warnings: [] };
  const recording = {
    latest: () => {
      indexed += 1;
      return Promise.resolve(index);
    },
    rows: () => {
      asked += 1;
      return Promise.resolve(rows);
    },
    groups: () => Promise.resolve('of the server'),
    dispose: () => undefined
  };
  return { recording: recording as unknown as ServerMoments, asked: () => asked, indexed: () => indexed };
}

describe('the statistics of a run that goes on', () => {
  beforeEach(() => {
    jest.useFakeTimers();
  });

  afterEach(() => {
    jest.useRealTimers();
  });

  it('are the server’s while many recorded rows are still on their way', async () => {
    const { recording, asked, indexed } = recordingOf(1_000_000);
    const moments = new LiveMoments(new MomentStore(), recording);
    const index = await moments.index();
    expect(index.stats[0]?.rows).toBe(1_000_000);
    expect([moments.limitRows, asked()]).toEqual([0, 0]);
    expect(await moments.groups({ stat: 'grad', statistic: 'rms', by: [] })).toBe('of the server');
    // Each question begins with the index: the first picture waits for it once.
    expect((await moments.index()).stats[0]?.rows).toBe(1_000_000);
    expect(indexed()).toBe(1);
    await jest.advanceTimersByTimeAsync(5000);
    expect([moments.limitRows, asked()]).toEqual([Infinity, 1]);
    expect((await moments.index()).stats[0]?.rows).toBe(1);
    moments.dispose();
  });

  it('are brought at once where there are few', async () => {
    const { recording, asked } = recordingOf(1000);
    const moments = new LiveMoments(new MomentStore(), recording);
    await moments.index();
    expect([moments.limitRows, asked()]).toEqual([Infinity, 1]);
    moments.dispose();
  });

  it('are read again after frames were lost, but not again and again', async () => {
    const { recording, asked } = recordingOf(1000);
    const moments = new LiveMoments(new MomentStore(), recording);
    await moments.index();
    moments.lose();
    await moments.index();
    expect(asked()).toBe(1);
    await jest.advanceTimersByTimeAsync(11_000);
    await moments.index();
    expect(asked()).toBe(2);
    await moments.index();
    expect(asked()).toBe(2);
    moments.dispose();
  });
});

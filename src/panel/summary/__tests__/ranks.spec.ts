/** @jest-environment ./jest.environment.node.js */
import { nullTranslator } from '@jupyterlab/translation';
import { layerSpan } from '../../trace/estimate';
import { layoutText, rankName, rankText, stagesOf, troubledRanks } from '../ranks';
import { JOB, rankStates } from '../../shell/__tests__/memory-job';

const trans = nullTranslator.load('megalens');

describe('the processes of a job', () => {
  it('are told in one line, with further axes where they are used', () => {
    expect(layoutText(JOB.layout!)).toBe('TP 2 PP 2 DP 2');
    expect(layoutText({ ...JOB.layout!, vpp: 2, ep: 4, cp: 1 })).toBe('TP 2 PP 2 DP 2 VP 2 EP 4');
  });

  it('that are lost or silent come first, by name', () => {
    const ranks = rankStates({
      3: { state: 'silent', seconds: 2.5, step: 1239 },
      5: { state: 'silent', seconds: 9 },
      6: { state: 'lost' }
    });
    const troubled = troubledRanks({ type: 'status', state: 'training', step: 1240, ranks });
    expect(troubled.map(({ rank }) => rank)).toEqual([6, 5, 3]);
    const last = troubled[2]!;
    expect(`${rankName(3, last, null)} ${rankText(last, trans)}`).toBe(
      'rank 3 (tp 1, pp 0) on node-1 has been silent for 2.5 s, since step 1\u202f239'
    );
    expect(rankName(7, null, JOB.layout!.ranks![7]!)).toBe('rank 7 (tp 1, pp 1, dp 1) on node-2');
  });

  it('stand by stage, those that nobody placed apart', () => {
    const status = { type: 'status', state: 'training', step: 1, ranks: rankStates() } as const;
    const ranks = [...status.ranks, { rank: 9, state: 'idle', step: 0 } as const];
    const stages = stagesOf(JOB.layout, { ...status, ranks });
    expect(stages.map(({ stage, ranks }) => [stage, ranks.map(({ rank }) => rank)])).toEqual([
      [0, [0, 1, 2, 3]],
      [1, [4, 5, 6, 7]],
      [null, [9]]
    ]);
    expect(stagesOf(JOB.layout, null)[0]?.ranks[0]?.state).toBeNull();
    expect(stagesOf(null, null)).toEqual([]);
  });
});

it('layers that exist are told with their gaps', () => {
  expect(layerSpan([1, 2, 3, 4])).toBe('1–4');
  expect(layerSpan([6, 2, 5, 4])).toBe('2, 4–6');
  expect(layerSpan([])).toBe('–');
});

/** @jest-environment ./jest.environment.node.js */
import { readFileSync } from 'fs';
import { PlanError } from '../../../plan/plan-shape';
import { deletedRanks, rankMap } from '../rank-map';

interface ICase {
  readonly request: Record<string, unknown>;
  readonly processes: string;
}

const CASES = JSON.parse(readFileSync('protocol/fixtures/rank-maps.json', 'utf8')) as ICase[];

const refusal = (request: object): PlanError => {
  try {
    rankMap({ tensor: 2, pipeline: 2, data: 2, ...request });
  } catch (reason) {
    return reason as PlanError;
  }
  throw new Error('It was not refused.');
};

describe('Which process does what', () => {
  it.each(['megafbd', 'one_flag', 'megalens'])('is as walking through the processes of %s says', layout => {
    const cases = CASES.filter(({ request }) => request['layout'] === layout);
    expect(cases.length).toBeGreaterThan(90);
    for (const { request, processes } of cases) {
      const map = rankMap(request);
      expect(map.processes.map(({ virtual }) => virtual.join(',') || '-').join(' ')).toBe(processes);
      // There and back again.
      const astray = map.ranks.filter(({ virtual, real, role }) => {
        const process = map.processes[real];
        return process?.role !== role || process.real !== real || !process.virtual.includes(virtual);
      });
      expect(astray).toEqual([]);
    }
  });

  it('leaves the peer its extra coordinator and its table of deleted ranks', () => {
    const map = rankMap({ layout: 'megafbd', tensor: 2, pipeline: 2, data: 2 });
    expect(map.processes).toHaveLength(7);
    expect(map.processes[0]).toMatchObject({ role: 'coordinator', virtual: [] });
    expect(map.ranks.map(({ real }) => real)).toEqual([1, 1, 2, 3, 4, 4, 5, 6]);
    expect(deletedRanks(map)).toEqual([0, 1, -1, -2, 0, 1, -1, -2]);
  });

  it.each([
    ['data', { layout: 'megafbd', data: 3 }, 'data must be even for megafbd, got 3'],
    ['forward_tensor', { tensor: 6, forward_tensor: 4 }, 'must divide tensor, 6, got 4. Try 1, 2, 3, 6'],
    ['forward_tensor', { layout: 'megafbd', forward_tensor: 2 }, 'of megafbd is always 1, got 2'],
    ['context', { context: 2 }, 'context must be 1, got 2'],
    ['expert', { expert: 4 }, 'expert must be 1, got 4'],
    ['last_forward', { pipeline: 1, last_forward: false }, 'must be true with one stage'],
    ['last_forward', { layout: 'one_flag', last_forward: false }, 'Only layout megalens'],
    ['world', { world: 15 }, 'needs 16 processes (8 forward, 8 backward), got 15'],
    ['data', { tensor: 64, pipeline: 1024, data: 4096 }, 'at most 262144 processes'],
    ['hosts', { hosts: 'a slots=15' }, 'for each of 16 processes, got 15, and none for 1 backward of them'],
    ['hosts', { hosts: 'a slots=8 role=forward\nb slots=6 role=backward' }, 'none for 2 backward'],
    ['hosts', { hosts: 'a\n\na' }, 'Line 3 of the host file names a again'],
    ['hosts', { hosts: 'a slots=0' }, 'must have slots from 1 to 1024, got 0'],
    ['hosts', { hosts: 'a role=both' }, 'must have the role any, backward, forward, got both'],
    ['hosts', { hosts: 'a cores=4' }, 'must have slots=, role= or device= after the name, got cores=4'],
    ['tensor', { tensor: 0 }, 'tensor must be 1 to 64, got 0']
  ])('refuses %s by name: %j', (field, request, words) => {
    const { code, message, field: said } = refusal(request);
    expect([code, said]).toEqual([
      field === 'tensor' || message.startsWith('Line') ? 'request' : 'fit',
      field
    ]);
    expect(message).toContain(words);
  });

  it('seats processes on hosts for their role first, then on those for any', () => {
    const hosts =
      '# a cluster\nbig slots=2 role=backward device=cuda\nsmall slots=1 role=forward device=cpu\nrest slots=9 # the rest';
    const { processes } = rankMap({ tensor: 1, pipeline: 2, data: 1, hosts });
    expect(processes.map(({ role, seat }) => [role, seat?.host, seat?.slot, seat?.device])).toEqual([
      ['forward', 'small', 0, 'cpu'],
      ['backward', 'big', 0, 'cuda'],
      ['forward', 'rest', 0, ''],
      ['backward', 'big', 1, 'cuda']
    ]);
  });
});

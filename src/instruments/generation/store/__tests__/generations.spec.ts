/** @jest-environment ./jest.environment.node.js */
import {
  controlOf,
  generationOf,
  generationsOf,
  isUnderWay,
  readGenerations,
  readToken,
  readTokens,
  sequencesOf,
  tokensOf
} from '../generations';
import type { IStreamRows, RowColumn } from '../../../../store/row-store';
import { streamRows, WrittenRun } from '../../../../store/__tests__/written-run';

const rowsOf = (columns: Record<string, RowColumn>, length: number): IStreamRows => ({
  length,
  columns,
  evictedRows: 0,
  sampledEvery: 1
});

describe('generations', () => {
  it('stand as their newest row says, with the request of their first', () => {
    const request = { prompts: ['Once', 'Twice'], samples: 2, tokens: 8 };
    const [one, two] = generationsOf(
      streamRows('generations', [
        { generation: 1, state: 'queued', time: 1, place: 2, request: JSON.stringify(request) },
        { generation: 2, state: 'queued', time: 2, place: 1, control: 1 },
        { generation: 1, state: 'running', time: 3, sequences: 4, tokens: 3, seconds: 0.5 },
        {
          generation: 1,
          state: 'finished',
          time: 4,
          sequences: 4,
          tokens: 32,
          seconds: 2,
          message: 'Eager attention.'
        }
      ])
    );
    expect(one).toMatchObject({
      generation: 1,
      state: 'finished',
      place: 0,
      tokens: 32,
      seconds: 2,
      message: 'Eager attention.',
      request
    });
    expect(two).toMatchObject({ generation: 2, state: 'queued', place: 1, control: 1, request: null });
    expect([one, two].map(each => each && isUnderWay(each))).toEqual([false, true]);
    expect(one && sequencesOf(one)).toEqual([
      { prompt: 'Once', sample: 0, samples: 2 },
      { prompt: 'Once', sample: 1, samples: 2 },
      { prompt: 'Twice', sample: 0, samples: 2 },
      { prompt: 'Twice', sample: 1, samples: 2 }
    ]);
  });

  it('are chosen by number, the newest where none is named, and of a pair the perturbed one', () => {
    const all = generationsOf(
      streamRows('generations', [
        { generation: 4, control: 5, time: 1 },
        { generation: 5, time: 2 },
        { generation: 1, time: 1 }
      ])
    );
    expect(all.map(each => each.generation)).toEqual([1, 4, 5]);
    const newest = generationOf(all, null);
    expect(newest?.generation).toBe(4);
    expect(newest && controlOf(all, newest)?.generation).toBe(5);
    expect(generationOf(all, 1)?.generation).toBe(1);
    expect(generationOf(all, 9)).toBeUndefined();
    expect(generationOf([], null)).toBeUndefined();
  });

  it.each([
    ['no JSON', '{"prompts":'],
    ['no object', '7'],
    ['no prompts', '{}'],
    ['129 of them', JSON.stringify({ prompts: Array.from({ length: 129 }, () => 'x') })],
    ['numbers out of bounds', '{"prompts":["x"],"temperature":-1}'],
    ['members of another version', '{"prompts":["x"],"beam":3}'],
    ['half a character', '{"prompts":["\\ud800"]}'],
    ['a prototype', '{"prompts":["x"],"__proto__":{"tokens":1}}']
  ])('have no request where it is %s', (_, request) => {
    const [found] = generationsOf(streamRows('generations', [{ generation: 1, request }]));
    expect(found?.request).toBeNull();
    expect(found && sequencesOf(found)).toEqual([]);
  });

  it('with hostile rows are harmless', () => {
    const found = generationsOf(
      rowsOf(
        {
          generation: Float64Array.from([NaN, -3, 1.5, 7]),
          state: ['x', 'x', 'x', 'evaporated'],
          place: Float64Array.from([0, 0, 0, -5]),
          message: ['', '', '', 'y'.repeat(1e5)]
        },
        4
      )
    );
    expect(found).toHaveLength(1);
    expect(found[0]).toMatchObject({ generation: 7, state: 'finished', place: 0, control: 0, firstStep: -1 });
    expect(found[0]?.message.length).toBeLessThanOrEqual(4000);
    expect(found[0]?.seconds).toBeNaN();
    expect(generationsOf(rowsOf({}, 3))).toEqual([]);
  });
});

describe('tokens', () => {
  it('come by sequence and position, each with what it could have been', () => {
    const [first, second, third] = tokensOf(
      streamRows('tokens', [
        { sequence: 1, position: 0, kind: 'prompt', text: 'b', piece: 'b', probability: NaN, rank: -1 },
        {
          sequence: 0,
          position: 1,
          kind: 'generated',
          id: 9,
          text: ' c',
          piece: ' c',
          probability: 0.25,
          sampled_probability: 0.5,
          rank: 1,
          entropy: 1.5,
          candidate_ids: [3, 9],
          candidate_texts: [' d', ' c'],
          candidate_logits: [2, 1],
          candidate_probabilities: [0.5, 0.25],
          candidate_sampled: [0.5, 0.5],
          tensor_step: 7,
          tensor_pass: 2,
          tensor_offset: 3
        },
        { sequence: 0, position: 0, kind: 'prompt', text: 'a', piece: 'a', candidate_sampled: [] }
      ])
    );
    expect(first).toMatchObject({ sequence: 0, position: 0, isPrompt: true, text: 'a', candidates: [] });
    expect(second).toMatchObject({
      position: 1,
      isPrompt: false,
      id: 9,
      piece: ' c',
      probability: 0.25,
      sampledProbability: 0.5,
      rank: 1,
      entropy: 1.5,
      location: { position: 1, step: 7, pass: 2, offset: 3 }
    });
    expect(second?.candidates).toEqual([
      { id: 3, text: ' d', logit: 2, probability: 0.5, sampled: 0.5 },
      { id: 9, text: ' c', logit: 1, probability: 0.25, sampled: 0.5 }
    ]);
    expect(third).toMatchObject({ sequence: 1, rank: -1 });
    expect(third?.probability).toBeNaN();
  });

  it('that came twice count once, the newer one', () => {
    const found = tokensOf(
      streamRows('tokens', [
        { step: 2, position: 0, text: 'new' },
        { step: 1, position: 0, text: 'old' }
      ])
    );
    expect(found.map(each => each.text)).toEqual(['new']);
  });

  it('with hostile rows are harmless', () => {
    const found = tokensOf(
      rowsOf(
        {
          sequence: Float64Array.from([0, 0, -1, 0, 1e9]),
          position: Float64Array.from([3, 1e12, 0, 0.5, 0]),
          probability: Float64Array.from([7, 0, 0, 0, 0]),
          rank: Float64Array.from([Infinity, 0, 0, 0, 0]),
          piece: ['\ud800'.repeat(5000), '', '', '', ''],
          candidate_ids: [Array.from({ length: 500 }, (_, id) => id), [], [], [], []],
          candidate_texts: [['one'], [], [], [], []]
        },
        5
      )
    );
    expect(found).toHaveLength(1);
    const [token] = found;
    expect(token).toMatchObject({ position: 3, isPrompt: false, text: '', rank: -1, id: -1 });
    expect(token?.probability).toBeNaN();
    expect(token?.piece).not.toMatch(/\p{Surrogate}/u);
    expect(token?.piece.length).toBeLessThanOrEqual(1000);
    expect(token?.candidates).toHaveLength(100);
    expect(token?.candidates[1]).toEqual({ id: 1, text: '', logit: NaN, probability: NaN, sampled: NaN });
    expect(token?.location).toEqual({ position: 3, step: -1, pass: 0, offset: 0 });
    expect(tokensOf(rowsOf({}, 2))).toEqual([]);
  });

  it('are asked for by generation and sequence', async () => {
    const run = new WrittenRun();
    run.generated(1, { prompts: ['a', 'b'] });
    run.text(1, ['a']);
    run.text(1, ['b', 'c'], 1);
    run.text(2, ['d']);
    expect((await readGenerations(run)).map(each => each.generation)).toEqual([1]);
    const texts = async (...of: [number, number?]): Promise<string[]> =>
      (await readTokens(run, ...of)).map(each => each.text);
    expect(await texts(1)).toEqual(['a', 'b', 'c']);
    expect(await texts(1, 1)).toEqual(['b', 'c']);
    expect(await texts(3)).toEqual([]);
  });

  it('come without candidates, unless it is one that is looked at', async () => {
    const run = new WrittenRun();
    const candidates = { candidate_ids: [5], candidate_texts: ['x'] };
    run.write('tokens', ...[0, 1].map(position => ({ generation: 1, position, piece: 'p', ...candidates })));
    const asked = jest.spyOn(run, 'table');
    const [, token] = await readTokens(run, 1, 0);
    expect(token).toMatchObject({ position: 1, piece: 'p', candidates: [] });
    expect(asked.mock.lastCall?.[1]?.columns).not.toContain('candidate_ids');
    expect(await readToken(run, 1, 0, 1)).toMatchObject({ position: 1, candidates: [{ id: 5, text: 'x' }] });
    expect(asked.mock.lastCall?.[1]).toEqual({ where: { generation: 1, sequence: 0, position: 1 } });
    expect(await readToken(run, 1, 0, 7)).toBeUndefined();
  });
});

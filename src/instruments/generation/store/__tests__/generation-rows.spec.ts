/** @jest-environment ./jest.environment.node.js */

import { attentionPieces, joinAttention } from '../attention-rows';
import { GenerationRows, joinPositions, type ITokenLocation } from '../generation-rows';
import type { ITensorQuery, ITensorRow } from '../../../../store/tensor-data';
import { MemoryRun } from '../../../../store/__tests__/memory-run';
import { attentionRow, placesOf } from './written-text';

const MLP = { flag: 'MLP1_mat_mul', layers: [1] };
const ATTENTION = { flag: 'RawAttentionScore_mat_mul', layers: [0] };

let run: MemoryRun;
let rows: GenerationRows;

beforeEach(() => {
  run = new MemoryRun();
  rows = new GenerationRows(run);
});

/** Two sequences: prompts of 3 and 1 tokens, the second padded by 2. value = 100 × sequence + 10 × position + tile. */
function tiles(step: number, positions: readonly number[]): Partial<ITensorRow> {
  const values = [0, 1].flatMap(sequence =>
    positions.flatMap(place => [0, 1].map(tile => 100 * sequence + 10 * (place - 2 * sequence) + tile))
  );
  const shape = [2, positions.length, 2];
  return {
    step,
    layer: 1,
    phase: 'generate',
    shape,
    sourceShape: [2, positions.length, 512],
    values: Float32Array.from(values)
  };
}

it('puts the positions of a text together from the prompt and one pass for each later token', async () => {
  run.add(tiles(1, [0, 1, 2]), tiles(2, [3]), tiles(3, [4]));
  const read = await rows.read(1, MLP, placesOf(3, 2));
  expect(read).toMatchObject({ layers: [1], count: 6, unread: 1, missing: 0 });
  const joined = joinPositions(read, 1, 0);
  expect(joined?.row.shape).toEqual([1, 6, 2]);
  expect(joined?.row.sourceShape).toEqual([1, 6, 512]);
  expect([...(joined?.row.values ?? [])]).toEqual([0, 1, 10, 11, 20, 21, 30, 31, 40, 41, NaN, NaN]);
  expect([...(joined?.missing ?? [])]).toEqual([0, 0, 0, 0, 0, 1]);
});

it('cuts off what is left of a shorter prompt', async () => {
  run.add(tiles(1, [0, 1, 2]), tiles(2, [3]), tiles(3, [4]));
  const joined = joinPositions(await rows.read(1, MLP, placesOf(1, 2, { padding: 2 })), 1, 1);
  expect([...(joined?.row.values ?? [])]).toEqual([100, 101, 110, 111, 120, 121, NaN, NaN]);
});

it('leaves what did not come out as missing, never as zero, and counts it', async () => {
  run.add(tiles(1, [0, 1, 2]), tiles(3, [4]));
  const read = await rows.read(1, MLP, placesOf(3, 2));
  expect(read).toMatchObject({ missing: 1, unread: 1 });
  const joined = joinPositions(read, 1, 0);
  expect([...(joined?.row.values.subarray(6, 10) ?? [])]).toEqual([NaN, NaN, 40, 41]);
  expect([...(joined?.missing ?? [])]).toEqual([0, 0, 0, 1, 0, 1]);
  expect(joinPositions(read, 1, 2)).toBeNull();
  expect(joinPositions(read, 0, 0)).toBeNull();
});

it('leaves out what was traced by another compressor before', async () => {
  run.add(tiles(1, [0, 1, 2]), { ...tiles(2, [3]), compressor: 'NoOp()' });
  const joined = joinPositions(await rows.read(1, MLP, placesOf(3, 2)), 1, 0);
  expect([...(joined?.missing ?? [])]).toEqual([1, 1, 1, 0, 1, 1]);
});

it('reads only what is new while a text is written, and again what had not come', async () => {
  run.add(tiles(1, [0, 1, 2]), tiles(2, [3]));
  await rows.read(1, MLP, placesOf(3, 1));
  expect(run.asked.map(each => each.steps)).toEqual([[1, 2]]);
  // The token is told before its tensors are.
  await rows.read(1, MLP, placesOf(3, 2));
  await rows.read(1, MLP, placesOf(3, 2));
  expect(run.asked.map(each => each.steps)).toEqual([
    [1, 2],
    [3, 3]
  ]);
  run.add(tiles(3, [4]));
  rows.came(3, 3);
  const read = await rows.read(1, MLP, placesOf(3, 2));
  expect(run.asked).toHaveLength(3);
  expect(read.missing).toBe(0);
});

it('asks again for what came while an answer was on its way', async () => {
  run.add(tiles(1, [0, 1, 2]));
  const tensors = run.tensors.bind(run);
  // As of a live run: what is here is taken, and then the recording is waited for.
  jest.spyOn(run, 'tensors').mockImplementationOnce(async (query: ITensorQuery) => {
    const answer = await tensors(query);
    run.add(tiles(2, [3]));
    rows.came(2, 2);
    return answer;
  });
  const first = await rows.read(1, MLP, placesOf(3, 1));
  expect(first.missing).toBe(1);
  const second = await rows.read(1, MLP, placesOf(3, 1));
  expect(second.missing).toBe(0);
  // What nobody has is not asked for again and again.
  await rows.read(1, MLP, placesOf(3, 2));
  const asked = run.asked.length;
  await rows.read(1, MLP, placesOf(3, 2));
  expect(run.asked).toHaveLength(asked);
});

it('reads passes that share a step by their numbers, as in a training', async () => {
  const pass = (microBatch: number, positions: readonly number[]): Partial<ITensorRow> => ({
    ...tiles(7, positions),
    microBatch
  });
  run.add(pass(4, [0, 1, 2]), pass(5, [3]), pass(6, [4]));
  const places = placesOf(3, 2).map((each): ITokenLocation => ({
    ...each,
    step: each.step < 0 ? -1 : 7,
    pass: each.step + 3
  }));
  const joined = joinPositions(await rows.read(1, MLP, places), 1, 0);
  expect([...(joined?.row.values.subarray(4, 10) ?? [])]).toEqual([20, 21, 30, 31, 40, 41]);
});

it('asks again in halves where one answer would leave steps out', async () => {
  run.add(tiles(1, [0, 1, 2]), tiles(2, [3]), tiles(3, [4]));
  const query = run.tensors.bind(run);
  run.tensors = async asked => {
    const result = await query(asked);
    const [first = 0, last = 0] = asked.steps ?? [];
    return last - first > 0
      ? { ...result, rows: result.rows.slice(0, 1), sampledEvery: 3 }
      : { ...result, sampledEvery: 1 };
  };
  expect(await rows.read(1, MLP, placesOf(3, 2))).toMatchObject({ missing: 0, unread: 1 });
});

describe('attention', () => {
  /** Of a sequence and head every probability of a query is different: 0.1 × query + 0.01 × key + head + 2 × sequence. */
  const value = (sequence: number, head: number, query: number, key: number): number =>
    0.1 * query + 0.01 * key + head + 2 * sequence;
  const write = (padding: readonly number[], cells?: number): void => {
    for (const [step, queries, keys] of [
      [1, 3, 3],
      [2, 1, 4],
      [3, 1, 5]
    ] as const) {
      run.add(attentionRow({ step, queries, keys, heads: 2, padding, ...(cells ? { cells } : {}) }, value));
    }
  };
  const cellsOf = (map: ReturnType<typeof joinAttention>, head: number): (number | null)[][] => {
    const { queries, keys, missing, row } = map as NonNullable<typeof map>;
    return Array.from({ length: queries.count }, (_, query) =>
      Array.from({ length: keys.count }, (__, key) => {
        const at = query * keys.count + key;
        const cell = row.values[head * missing.length + at] ?? NaN;
        return missing[at] === 1 ? null : Number(cell.toFixed(2));
      })
    );
  };

  it('has queries down and keys across, and nothing where a query cannot look', async () => {
    write([0]);
    const map = joinAttention(await rows.read(1, ATTENTION, placesOf(3, 2)), 0, { sequence: 0 });
    expect(map?.row.shape).toEqual([1, 2, 6, 6]);
    expect(cellsOf(map, 0)).toEqual([
      [0, null, null, null, null, null],
      [0.1, 0.11, null, null, null, null],
      [0.2, 0.21, 0.22, null, null, null],
      [0.3, 0.31, 0.32, 0.33, null, null],
      [0.4, 0.41, 0.42, 0.43, 0.44, null],
      [null, null, null, null, null, null]
    ]);
    expect(cellsOf(map, 1)[4]).toEqual([1.4, 1.41, 1.42, 1.43, 1.44, null]);
  });

  it('cuts padding off both axes', async () => {
    write([0, 2]);
    const read = await rows.read(1, ATTENTION, placesOf(1, 2, { padding: 2 }));
    const map = joinAttention(read, 0, { sequence: 1, heads: [1] });
    expect(cellsOf(map, 0)).toEqual([
      [3, null, null, null],
      [3.1, 3.11, null, null],
      [3.2, 3.21, 3.22, null],
      [null, null, null, null]
    ]);
    expect(map?.padded).toBe(false);
  });

  it('keeps zeros after the query where a model looks ahead, and shows what is not finite', async () => {
    run.add(
      attentionRow(
        { step: 1, queries: 2, keys: 2, heads: 1, padding: [0], ahead: true },
        (_, __, query, key) => (query === 0 && key === 1 ? 0.25 : query === 1 && key === 0 ? NaN : 0)
      )
    );
    const map = joinAttention(await rows.read(1, ATTENTION, placesOf(2, 0)), 0, { sequence: 0 });
    expect(cellsOf(map, 0)).toEqual([
      [0, 0.25],
      [NaN, 0]
    ]);
  });

  it('joins blocks at the largest one, keeping maxima', async () => {
    // At most 2 blocks: the prompt of 3 in blocks of 2, later passes over 4 keys in blocks of 2 and over 5 in blocks of 4.
    write([0], 2);
    const read = await rows.read(1, ATTENTION, placesOf(3, 2));
    expect(attentionPieces(read, 0, 0).map(({ queries, keys }) => [queries.side, keys.side])).toEqual([
      [2, 2],
      [1, 2],
      [1, 4]
    ]);
    const map = joinAttention(read, 0, { sequence: 0 });
    expect(map).toMatchObject({
      queries: { first: 0, side: 2, count: 3 },
      keys: { first: 0, side: 4, count: 2 }
    });
    expect(cellsOf(map, 0)).toEqual([
      [0.11, null],
      [0.33, null],
      [0.43, 0.44]
    ]);
    // A part without the last pass has the blocks of the others.
    const part = joinAttention(read, 0, { sequence: 0, queries: [2, 3], keys: [0, 3] });
    expect(part).toMatchObject({ queries: { first: 2, side: 2, count: 1 }, keys: { side: 2, count: 2 } });
    expect(cellsOf(part, 0)).toEqual([[0.31, 0.33]]);
  });

  it('lays the cells of a padded text on its blocks, and says that the first holds padding', async () => {
    write([0, 1], 2);
    const read = await rows.read(1, ATTENTION, placesOf(2, 2, { padding: 1 }));
    const map = joinAttention(read, 0, { sequence: 1, queries: [0, 1] });
    expect(map).toMatchObject({ padded: true, queries: { first: -1, side: 2, count: 2 } });
    // The pass read positions -1 to 1: its blocks are -1 to 0 and 1 to 2.
    expect(cellsOf(map, 0)).toEqual([
      [9, null, null],
      [2.1, 2.11, null]
    ]);
  });

  it('joins further where there are more cells than are wanted', async () => {
    write([0]);
    const map = joinAttention(await rows.read(1, ATTENTION, placesOf(3, 2)), 0, { sequence: 0, most: 3 });
    expect(map).toMatchObject({ queries: { side: 2, count: 3 }, keys: { side: 2, count: 3 } });
    expect(cellsOf(map, 0)).toEqual([
      [0.11, null, null],
      [0.31, 0.33, null],
      [0.41, 0.43, 0.44]
    ]);
  });
});

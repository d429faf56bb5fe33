/** @jest-environment ./jest.environment.node.js */

import { STREAMS } from '../../protocol/streams';
import { joinTables, keyColumns } from '../live-past';
import type { IStreamRows } from '../row-store';
import { streamRows } from './written-run';

const KEYS = keyColumns(STREAMS.tokens);

const tokens = (...places: readonly (readonly [step: number, position: number])[]): IStreamRows =>
  streamRows(
    'tokens',
    places.map(([step, position]) => ({ generation: 1, step, position, piece: `p${position}` }))
  );

const placesOf = ({ columns, length }: IStreamRows): number[][] =>
  Array.from({ length }, (_, row) => [Number(columns['step']?.[row]), Number(columns['position']?.[row])]);

it('puts what is here behind what is recorded, each row once', () => {
  const joined = joinTables(tokens([5, 0], [5, 1], [6, 2]), tokens([6, 2], [7, 3]), KEYS);
  expect(placesOf(joined)).toEqual([
    [5, 0],
    [5, 1],
    [6, 2],
    [7, 3]
  ]);
  expect(joined.columns['piece']).toEqual(['p0', 'p1', 'p2', 'p3']);
});

it('keeps rows of the newest recorded step that were not recorded yet', () => {
  const joined = joinTables(tokens([5, 0], [5, 1]), tokens([5, 1], [5, 2], [6, 3]), KEYS);
  expect(placesOf(joined).map(([, position]) => position)).toEqual([0, 1, 2, 3]);
});

it('keeps rows of a step before it, and puts them in their place', () => {
  const joined = joinTables(tokens([5, 0], [7, 2]), tokens([6, 1]), KEYS);
  expect(placesOf(joined)).toEqual([
    [5, 0],
    [6, 1],
    [7, 2]
  ]);
});

it('tells rows of a stream by all their numbers and texts where nobody says what tells them apart', () => {
  const joined = joinTables(tokens([5, 0], [5, 1]), tokens([5, 1], [5, 2]), []);
  expect(placesOf(joined).map(([, position]) => position)).toEqual([0, 1, 2]);
  expect(keyColumns({ ...STREAMS.tokens, policy: { keep: 'newest' } })).toEqual([]);
});

/** @jest-environment ./jest.environment.node.js */

import { rowOf } from '../../store/__tests__/memory-run';
import { shapeHeatmap } from '../heatmap/heatmap-data';

const request = {
  step: 1,
  sample: 0,
  head: 1,
  scale: 'shared' as const,
  transform: 'linear' as const,
  axes: ['head', 'query', 'key'],
  tokens: ['a', 'b', 'c', 'd']
};
const attention = (cells: number): ReturnType<typeof rowOf> =>
  rowOf({
    flag: 'RawAttentionScore_mat_mul',
    compressor: `Peaks(cells=${cells})`,
    shape: [1, 2, cells, cells],
    sourceShape: [1, 2, 4, 4],
    values: Float32Array.from({ length: 2 * cells * cells }, (_, at) => at)
  });

it('names attention by queries and keys, with their tokens, where every value is kept', () => {
  const { axes, tokens, extent } = shapeHeatmap([attention(4)], request);
  expect([axes.x, axes.y]).toEqual(['key', 'query']);
  expect(tokens).toEqual(request.tokens);
  expect(extent).toEqual([16, 31]);
});

it('names blocks of queries and keys, which have no one token', () => {
  const { axes, tokens } = shapeHeatmap([attention(2)], request);
  expect([axes.x, axes.y]).toEqual(['key block', 'query block']);
  expect(tokens).toEqual([]);
});

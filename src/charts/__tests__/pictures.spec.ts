/** @jest-environment ./jest.environment.node.js */
import { ColorScale } from '../color-scale';
import { Pictures } from '../pictures';
import { paint } from '../pixels';

const matrix = (...values: number[]): { rows: number; columns: number; values: number[] } => ({
  rows: 1,
  columns: values.length,
  values
});
const scale = new ColorScale([0, 1]);

it('paints a picture anew only when its numbers or its colours are other ones', () => {
  const pictures = new Pictures();
  const first = matrix(0, 1);
  const picture = pictures.draw(1, first, scale);
  expect(pictures.draw(1, first, new ColorScale([0, 1]))).toBe(picture);
  expect(pictures.painted).toBe(1);
  pictures.draw(1, matrix(1, 0), scale);
  pictures.draw(1, first, new ColorScale([0, 2]));
  expect(pictures.painted).toBe(3);
});

it('forgets the pictures of what is not shown any more', () => {
  const pictures = new Pictures();
  const [first, second] = [matrix(0), matrix(1)];
  pictures.draw(1, first, scale);
  pictures.draw(2, second, scale);
  pictures.keep([2]);
  pictures.draw(2, second, scale);
  expect(pictures.painted).toBe(2);
  pictures.draw(1, first, scale);
  expect(pictures.painted).toBe(3);
});

it('paints over pixels of the same size, and leaves nothing of them where a cell is missing', () => {
  const before = paint(matrix(0, 0.5, 1), scale);
  const after = paint({ ...matrix(1, 0, 0), missing: new Uint8Array([0, 0, 1]) }, scale, before);
  expect(after.data.buffer).toBe(before.data.buffer);
  expect(after.data).toEqual(paint({ ...matrix(1, 0, 0), missing: new Uint8Array([0, 0, 1]) }, scale).data);
  expect(paint(matrix(1, 0), scale, after).data.buffer).not.toBe(before.data.buffer);
});

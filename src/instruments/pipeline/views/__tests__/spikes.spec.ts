/** @jest-environment ./jest.environment.node.js */
import { piecesOf, type IOperation } from '../plan-lanes';

const PLACE = { group: 0, lane: 0, row: 0 };

it.each([10, 1000, 100_000])('one long operation of %i in a lane has a pixel of its colour', count => {
  const at = Math.floor(count * 0.617);
  let begin = 0;
  const operations = Array.from({ length: count }, (_, number): IOperation => {
    const length = number === at ? 30 : 1;
    const kind = number === at ? 'O' : number % 2 === 0 ? 'F' : 'B';
    begin += length;
    return { kind, chunk: 0, microBatch: number, begin: begin - length, end: begin };
  });
  for (const width of [300, 1000, 3000]) {
    const pixel = begin / width;
    const pieces = piecesOf({ name: '', operations }, PLACE, [0, begin], pixel);
    const [spike, ...others] = pieces.filter(({ kind }) => kind === 'O');
    expect(others).toEqual([]);
    expect(spike!.end - spike!.begin).toBeGreaterThanOrEqual(Math.min(30, 0.9 * pixel));
    expect(spike!.begin - pixel).toBeLessThanOrEqual(operations[at]!.begin);
    expect(spike!.end).toBeGreaterThanOrEqual(operations[at]!.end);
    expect(pieces.length).toBeLessThanOrEqual(2 * Math.max(count, width));
  }
});

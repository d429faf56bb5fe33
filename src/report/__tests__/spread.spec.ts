/** @jest-environment ./jest.environment.node.js */
import { spread } from '../report';

const steps = Array.from({ length: 40 }, (_, at) => at + 1);

describe('steps that a page holds', () => {
  it('are all of them where there is room', () => {
    expect(spread(steps, 11, 40)).toEqual(steps);
  });

  it('are spread evenly, with the first, the last and the one that is drawn', () => {
    expect(spread(steps, 11, 4)).toEqual([1, 11, 27, 40]);
    expect(spread(steps, 40, 2)).toEqual([1, 40]);
  });

  it.each([0, 1])('are the one that is drawn where there is room for %i', count => {
    expect(spread(steps, 11, count)).toEqual([11]);
  });
});

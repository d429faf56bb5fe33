/** @jest-environment ./jest.environment.node.js */
import { isInLoop, type Loop } from '../shared/content';

const SQUARE: Loop = [
  [0, 0],
  [2, 0],
  [2, 2],
  [0, 2]
];

it('holds what lies within it, whichever way round it was drawn', () => {
  for (const loop of [SQUARE, [...SQUARE].reverse()]) {
    expect([isInLoop(loop, 1, 1), isInLoop(loop, 3, 1), isInLoop(loop, -1, 1), isInLoop(loop, 1, 3)]).toEqual(
      [true, false, false, false]
    );
  }
});

it('leaves out what lies in a bay of it, and what is level with its corners', () => {
  const bay: Loop = [
    [0, 0],
    [4, 0],
    [4, 4],
    [2, 1],
    [0, 4]
  ];
  expect([isInLoop(bay, 2, 3), isInLoop(bay, 0.5, 2), isInLoop(bay, 3.5, 2)]).toEqual([false, true, true]);
  expect([isInLoop(bay, -1, 1), isInLoop(bay, 5, 1), isInLoop(bay, 1, 1)]).toEqual([false, false, true]);
});

it('holds nothing while it is no more than a line', () => {
  expect(isInLoop([], 0, 0)).toBe(false);
  expect(isInLoop([[1, 1]], 1, 1)).toBe(false);
  expect(
    isInLoop(
      [
        [0, 0],
        [2, 2]
      ],
      1,
      0.5
    )
  ).toBe(false);
});

import { stretch } from '../stretch';

describe('the height of a picture', () => {
  it.each([
    ['is the usual one without a frame', 300, 1, 0, 300],
    ['fills a tab', 360, 1, 830, 640],
    ['is never less than usual', 300, 1, 400, 300],
    ['is shared by rows of plots', 170, 2, 830, 300],
    ['stops growing at some point', 120, 1, 4000, 264]
  ])('%s', (_, usual, rows, frame, height) => {
    expect(stretch(usual, rows, frame)).toBe(height);
  });
});

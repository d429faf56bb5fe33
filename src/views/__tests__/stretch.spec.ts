import { spaceIn, stretch } from '../mount/picture';

describe('the height of a picture', () => {
  it.each([
    ['is the usual one without a frame', 300, 1, 0, 300],
    ['fills a tab', 360, 1, 830, 640],
    ['is lower in a low tab, so that its axis is in sight', 300, 1, 400, 200],
    ['is never less than says something', 300, 1, 200, 120],
    ['is the usual one of each of several rows, which are scrolled', 170, 2, 300, 170],
    ['is shared by rows of plots', 170, 2, 830, 300],
    ['fills a tall tab, however low it usually is', 120, 1, 1000, 800]
  ])('%s', (_, usual, rows, frame, height) => {
    expect(stretch(usual, rows, frame)).toBe(height);
  });
});

describe('the room of a picture', () => {
  const at = (top: number): Element => {
    const node = document.createElement('div');
    node.getBoundingClientRect = () => new DOMRect(0, top, 100, 100);
    Object.defineProperty(node, 'clientHeight', { value: 800 });
    return node;
  };

  it.each([
    ['is the frame’s', 100, 800],
    ['is less where filters are unfolded above it', 250, 710]
  ])('%s', (_, top, room) => {
    expect(spaceIn(at(30), at(top))).toBe(room);
  });

  it('is none without a frame', () => {
    expect(spaceIn(undefined, at(0))).toBe(0);
  });
});

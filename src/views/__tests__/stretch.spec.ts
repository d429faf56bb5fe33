import { leftIn, stretch, type Picture } from '../mount/picture';

describe('the height of a row of plots', () => {
  it.each([
    ['fills what is left', 1, 650, 120, 0, 640],
    ['is lower in a low tab, so that its axis is in sight', 1, 210, 120, 0, 200],
    ['is never less than says something', 1, 10, 120, 0, 120],
    ['is the usual one of each of several rows, which are scrolled', 2, 110, 170, 0, 170],
    ['is shared by rows of plots', 2, 610, 170, 0, 300],
    ['stays as it is while that is about full', 1, 650, 120, 620, 620],
    ['grows where much is left', 1, 650, 120, 600, 640],
    ['shrinks where it is too high', 1, 650, 120, 660, 640]
  ])('%s', (_, rows, left, least, before, height) => {
    expect(stretch(rows, left, least, before)).toBe(height);
  });
});

it('what a frame leaves for plots is what words, controls and axes do not take', () => {
  const at = (top: number, height: number): HTMLElement => {
    const node = document.createElement('div');
    node.getBoundingClientRect = () => new DOMRect(0, top, 100, height);
    Object.defineProperties(node, { clientHeight: { value: height }, offsetHeight: { value: height } });
    return node;
  };
  const pictures = [100, -60].map(own => ({ own }) as Picture);
  // Of 800 pixels 20 are above the view, which has 400 with a picture of 100; axes of another take 60.
  expect(leftIn(at(30, 800), at(50, 400), pictures)).toBe(800 - 20 - (400 - 40));
  expect(leftIn(at(30, 100), at(50, 400), pictures)).toBe(1);
});

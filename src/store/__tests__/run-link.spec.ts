/** @jest-environment ./jest.environment.node.js */
import { RunLink, type LinkChange } from '../run-link';

describe('RunLink', () => {
  let link: RunLink;
  let told: LinkChange[];
  const [one, two] = [{}, {}];

  beforeEach(() => {
    jest.useFakeTimers();
    link = new RunLink();
    told = [];
    link.changed.connect((_, change) => told.push(change));
  });

  afterEach(() => {
    link.dispose();
    jest.useRealTimers();
  });

  const frame = (): void => void jest.advanceTimersByTime(60);

  it('tells of a moving pointer once a frame, and only the newest place', () => {
    for (let layer = 1; layer <= 20; layer++) {
      link.point(one, { layer, step: 5 });
    }
    expect(told).toEqual([]);
    frame();
    expect(told).toEqual(['pointed']);
    expect(link.pointed).toEqual({ by: one, at: { layer: 20, step: 5 } });
  });

  it('says nothing of a pointer that stays where it is', () => {
    link.point(one, { layer: 1, step: 5 });
    frame();
    link.point(one, { layer: 1, step: 5 });
    frame();
    expect(told).toEqual(['pointed']);
  });

  it('lets a view take back only what it said itself', () => {
    link.point(one, { layer: 1, step: 5 });
    frame();
    link.point(two, null);
    frame();
    expect(link.pointed?.by).toBe(one);
    link.point(one, null);
    frame();
    expect(link.pointed).toBeNull();
  });

  it('tells at once of chosen steps, and that all are chosen again', () => {
    link.choose(one, [120, 340]);
    expect(link.filter).toEqual({ by: one, steps: [120, 340] });
    link.choose(one, [120, 340]);
    link.choose(two, null);
    expect(link.filter).toBeNull();
    link.choose(two, null);
    expect(told).toEqual(['filter', 'filter']);
  });

  it('forgets pointer and steps of whichever view when it is cleared', () => {
    link.point(one, { layer: 1, step: 5 });
    link.choose(one, [1, 2]);
    link.clear(two);
    frame();
    expect(link.pointed).toBeNull();
    expect(link.filter).toBeNull();
  });

  it('tells at once of a position of a text that is pinned, once, and lets go of it with everything else', () => {
    const at = { generation: 3, sequence: 1, position: 12 };
    link.pinPosition(at);
    link.pinPosition({ ...at });
    expect(link.position).toBe(at);
    expect(told).toEqual(['position']);
    link.pinPosition({ ...at, sequence: 0 });
    link.clear(one);
    expect(link.position).toBeNull();
    expect(told).toEqual(['position', 'position', 'position']);
  });

  it('tells a position under the pointer from the same one of another text', () => {
    const at = { layer: null, step: null, generation: 3, position: 12 };
    link.point(one, at);
    frame();
    link.point(one, { ...at });
    link.point(one, { ...at, generation: 4 });
    frame();
    expect(told).toEqual(['pointed', 'pointed']);
    expect(link.pointed?.at.generation).toBe(4);
  });

  it('tells nobody once it is disposed', () => {
    link.point(one, { layer: 1, step: 5 });
    link.dispose();
    link.dispose();
    link.choose(one, [1, 2]);
    frame();
    expect(told).toEqual([]);
    expect(link.filter).toBeNull();
  });
});

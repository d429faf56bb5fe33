import { Chart } from '../../charts';
import { MemoryRun } from '../../store/__tests__/memory-run';
import { AWAITED_INTERVAL, Pace } from '../mount/drawing';
import type { IView } from '../view';
import { showView, title } from './page';

/** Observers of the page, which has no layout to see with. */
let observed: ((entries: { isIntersecting: boolean }[]) => void)[] = [];
const see = (isIntersecting: boolean): void => observed.forEach(call => call([{ isIntersecting }]));

/** What the page would say of an element that is observed anew; null: nothing. */
let isInSight: boolean | null = null;

class Observer {
  constructor(private readonly _call: (entries: { isIntersecting: boolean }[]) => void) {
    observed.push(_call);
  }
  observe(): void {
    if (isInSight !== null) {
      this._call([{ isIntersecting: isInSight }]);
    }
  }
  unobserve(): void {}
  disconnect(): void {}
}

beforeEach(() => {
  observed = [];
  isInSight = null;
  Reflect.set(globalThis, 'IntersectionObserver', Observer);
});
afterEach(() => {
  jest.restoreAllMocks();
  Reflect.deleteProperty(globalThis, 'IntersectionObserver');
});

const frame = (): Promise<unknown> => new Promise(done => setTimeout(done, 150));

async function shown(run: MemoryRun): Promise<IView> {
  run.add({ step: 1, layer: 0, values: new Float32Array(6).fill(1) });
  return showView(run, { view: 'heatmap', flag: 'MLP1_mat_mul' });
}

it('draws nothing of a run while it is out of sight, and the newest step when it is seen again', async () => {
  const run = new MemoryRun();
  const heatmap = await shown(run);
  see(false);
  const asked = run.asked.length;
  run.add({ step: 2, layer: 0, values: new Float32Array(6).fill(2) });
  await frame();
  expect(run.asked.length).toBe(asked);
  expect(title()).toMatch(/step 1$/);
  see(true);
  await heatmap.settled();
  expect(title()).toMatch(/step 2$/);
});

it('draws again where the page did not say that it is seen again', async () => {
  const run = new MemoryRun();
  const heatmap = await shown(run);
  see(false);
  const later = performance.now() + 2000;
  jest.spyOn(performance, 'now').mockReturnValue(later);
  isInSight = false;
  run.add({ step: 2, layer: 0, values: new Float32Array(6).fill(2) });
  await frame();
  expect(title()).toMatch(/step 1$/);
  jest.spyOn(performance, 'now').mockReturnValue(later + 2000);
  isInSight = true;
  run.add({ step: 3, layer: 0, values: new Float32Array(6).fill(3) });
  await frame();
  await heatmap.settled();
  expect(title()).toMatch(/step 3$/);
});

it('draws out of sight for whoever waits for the picture, such as an export', async () => {
  const run = new MemoryRun();
  const heatmap = await shown(run);
  see(false);
  run.add({ step: 2, layer: 0, values: new Float32Array(6).fill(2) });
  expect(await heatmap.toSVG()).toContain('step 2');
});

it.each(['reading', 'drawing'])(
  'says that a picture is old whose next %s does not end, and draws anew',
  async what => {
    const wait = globalThis.setTimeout;
    jest
      .spyOn(globalThis, 'setTimeout')
      .mockImplementation(((call: () => void, ms = 0) => wait(call, ms === 5000 ? 20 : ms)) as typeof wait);
    const run = new MemoryRun();
    const heatmap = await shown(run);
    const never = (): Promise<never> => new Promise(() => undefined);
    const hung =
      what === 'reading'
        ? jest.spyOn(run, 'tensors').mockImplementation(never)
        : jest.spyOn(Chart.prototype, 'apply').mockImplementation(never);
    run.add({ step: 2, layer: 0, values: new Float32Array(6).fill(2) });
    await frame();
    await frame();
    expect(document.querySelector('.jp-MegalensBanner')?.textContent).toMatch(/picture is old.*Draw anew/);
    hung.mockRestore();
    run.add({ step: 3, layer: 0, values: new Float32Array(6).fill(3) });
    document.querySelector<HTMLElement>('.jp-MegalensBanner button')?.click();
    await heatmap.settled();
    expect(title()).toMatch(/step 3$/);
    expect(document.querySelector<HTMLElement>('.jp-MegalensBanner')?.hidden).toBe(true);
    expect(document.querySelectorAll('.jp-MegalensView svg.marks').length).toBe(1);
    jest.restoreAllMocks();
  }
);

it.each([
  ['nobody waits for', undefined, 0.1],
  ['a person waits for', AWAITED_INTERVAL, 0.3]
])('takes no more than a part of the time for pictures that %s', async (_, least, share) => {
  let [now, runs] = [0, 0];
  jest.spyOn(performance, 'now').mockImplementation(() => now);
  jest.useFakeTimers({ doNotFake: ['performance', 'requestAnimationFrame'] });
  const frames = jest.spyOn(globalThis, 'requestAnimationFrame').mockImplementation(call => (call(now), 0));
  const pace = new Pace(() => {
    runs += 1;
    now += 40;
    return Promise.resolve();
  });
  for (; now < 10_000; now += 20) {
    pace.request(false, least);
    await jest.advanceTimersByTimeAsync(20);
  }
  pace.dispose();
  frames.mockRestore();
  jest.useRealTimers();
  // The clock goes by 20 ms here, so that a timer may fire so much early.
  const most = (10_000 * 40) / (40 / share - 20);
  // The first picture, which loads what all others use, does not count, and the one after it comes soon.
  expect(40 * (runs - 2)).toBeLessThanOrEqual(most);
  expect(40 * runs).toBeGreaterThan(0.8 * most);
});

/** How long a trend of some steps may wait before it draws one more. */
async function waits(steps: number): Promise<number | undefined> {
  const run = new MemoryRun();
  const values = new Float32Array(6).fill(1);
  run.add(...Array.from({ length: steps }, (_, at) => ({ step: at + 1, layer: 0, values })));
  const view = await showView(run, { view: 'trend', flag: 'MLP1_mat_mul' });
  const request = jest.spyOn(Pace.prototype, 'request');
  run.add({ step: steps + 1, layer: 0, values });
  const least = request.mock.calls[0]?.[1];
  request.mockRestore();
  await view.settled();
  expect(title()).toContain((steps + 1).toLocaleString('en').replace(',', ' '));
  return least;
}

it('lets a step wait that moves lines by less than a pixel, half a second at most', async () => {
  expect(await waits(2000)).toBe(500);
});

it('lets no step wait that can be seen to move lines', async () => {
  // What a person takes as at once.
  expect(await waits(20)).toBeLessThanOrEqual(100);
});

it('runs what can wait twice a second, and at once what cannot', async () => {
  jest.useFakeTimers({ doNotFake: ['requestAnimationFrame'] });
  const frames = jest.spyOn(globalThis, 'requestAnimationFrame').mockImplementation(call => (call(0), 0));
  const runs: number[] = [];
  const began = performance.now();
  const pace = new Pace(() => Promise.resolve(void runs.push(performance.now() - began)));
  for (let at = 0; at < 18; at += 1) {
    pace.request(false, 500);
    await jest.advanceTimersByTimeAsync(100);
  }
  expect(runs).toEqual([0, 500, 1000, 1500]);
  pace.request();
  await jest.advanceTimersByTimeAsync(0);
  expect(runs).toHaveLength(5);
  pace.dispose();
  frames.mockRestore();
  jest.useRealTimers();
});

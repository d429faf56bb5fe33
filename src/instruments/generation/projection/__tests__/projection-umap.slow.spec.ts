/** @jest-environment ./jest.environment.node.js */
import { join } from 'path';
import { UMAP } from 'umap-js';
import { AggregateError } from '../../../../aggregate';
import { exactExp, exactLog, exactPower, NearestPoints } from '../../projection/umap-graph';
import type { IVectors } from '../../projection/features';
import { principalComponents, type IPrincipal } from '../../projection/principal-components';
import { ProjectionQueue, Projector, type UmapRun } from '../../projection/projector';
import { SeededRandom } from '../../../../protocol/seeded-random';
import { Umap, type IUmapState } from '../../projection/umap';
import { NodeWorkers } from '../../../../aggregate/__tests__/node-workers';

const workers = new NodeWorkers(join(__dirname, '../../projection/projection-worker.ts'));
const queues: ProjectionQueue[] = [];

afterEach(() => queues.splice(0).forEach(queue => queue.dispose()));
afterAll(() => workers.dispose());

/** Clouds of points about places of their own, the point's cloud by its number. */
function clouds(rows: number, columns: number, count = 5): IVectors {
  const random = new SeededRandom(3);
  const places = Array.from({ length: count * columns }, () => random.centred() * 4);
  const values = Float32Array.from(
    { length: rows * columns },
    (_, at) =>
      (places[(Math.floor(at / columns) % count) * columns + (at % columns)] as number) + random.centred()
  );
  return { rows, columns, values };
}

const begun = (points: IVectors): IPrincipal => principalComponents(points, 2, false);

function laidOut(points: IVectors, seed = 0): IUmapState {
  const { features, scores } = begun(points);
  const umap = new Umap(features, scores, { neighbors: 15, seed });
  let state = umap.advance();
  while (state.done < state.total) {
    state = umap.advance();
  }
  return state;
}

/** Part of the ten nearest points of a layout that are among the ten nearest of the points themselves. */
function keptNeighbours(points: IVectors, places: ArrayLike<number>): number {
  const nearest = (of: IVectors): Int32Array => {
    const search = new NearestPoints(of, 10);
    while (!search.isDone) {
      search.advance(1e7);
    }
    return search.found().rows;
  };
  const [near, drawn] = [
    nearest(points),
    nearest({ rows: points.rows, columns: 2, values: Float32Array.from(places) })
  ];
  const kept = near.filter((row, at) => {
    const first = Math.floor(at / 10) * 10;
    return drawn.subarray(first, first + 10).includes(row);
  });
  return kept.length / near.length;
}

it('finds the nearest points of every point, the earlier one of equals first, whatever stretch it goes by', () => {
  const points = { rows: 7, columns: 1, values: Float32Array.of(0, 1, 3, 3, 7, 15, 15) };
  for (const work of [1, 1e9]) {
    const search = new NearestPoints(points, 2);
    while (!search.isDone) {
      search.advance(work);
    }
    const { rows, distances } = search.found();
    expect([...rows]).toEqual([1, 2, 0, 2, 3, 1, 2, 1, 2, 3, 6, 4, 5, 4]);
    expect([...distances]).toEqual([1, 3, 1, 2, 0, 2, 0, 2, 4, 4, 0, 8, 0, 8]);
  }
});

it('keeps neighbours together as umap-js does, and clouds apart', () => {
  const points = clouds(100, 12);
  const { coordinates: places, seen } = laidOut(points);
  expect(seen).toBe(1);
  const random = new SeededRandom(1);
  const rows = Array.from({ length: points.rows }, (_, row) => [
    ...points.values.subarray(row * points.columns, (row + 1) * points.columns)
  ]);
  const theirs = new UMAP({ nNeighbors: 15, nEpochs: 200, random: () => random.centred() + 0.5 }).fit(rows);
  expect(keptNeighbours(points, places)).toBeGreaterThan(keptNeighbours(points, theirs.flat()) - 0.03);
  // Of each point the ten nearest that are drawn are of its own cloud.
  const search = new NearestPoints({ rows: 100, columns: 2, values: Float32Array.from(places) }, 10);
  search.advance(1e9);
  const strangers = search.found().rows.filter((row, at) => row % 5 !== Math.floor(at / 10) % 5);
  expect(strangers).toHaveLength(0);
});

it('is the same picture for the same seed, and another one for another', () => {
  const points = clouds(80, 6);
  expect(laidOut(points)).toEqual(laidOut(points));
  expect(laidOut(points, 1).coordinates).not.toEqual(laidOut(points).coordinates);
});

it('looks for neighbours among the first components where there are many features, and says how much they hold', () => {
  const { seen, coordinates: places } = laidOut(clouds(150, 200));
  expect(seen).toBeGreaterThan(0.8);
  expect(seen).toBeLessThan(1);
  expect(places.every(Number.isFinite)).toBe(true);
});

it.each([
  ['three points', 3],
  ['fewer points than neighbours', 9]
])('lays %s out', (_, rows) => {
  const { coordinates: places } = laidOut(clouds(rows, 4));
  expect(places.every(Number.isFinite)).toBe(true);
});

it('parts equal points', () => {
  const { coordinates: places } = laidOut({ rows: 30, columns: 3, values: new Float32Array(90).fill(2) });
  expect(places.every(Number.isFinite)).toBe(true);
  expect(new Set(places).size).toBe(60);
});

it('has exponentials, logarithms and powers like those of the language', () => {
  for (const x of [1e-9, 0.3, 1, 2.7, 40, 1e6]) {
    expect(exactLog(x) - Math.log(x)).toBeCloseTo(0, 13);
    expect(exactPower(x, 0.895) / x ** 0.895).toBeCloseTo(1, 12);
    expect(exactExp(-x) / (Math.exp(-x) || 1)).toBeCloseTo(x > 745 ? 0 : 1, 12);
  }
});

describe('what a page asks', () => {
  const queueOf = (worker: boolean): ProjectionQueue => {
    const queue = new ProjectionQueue(() => Promise.resolve(worker ? workers.open() : null));
    queues.push(queue);
    return queue;
  };
  // More numbers than are worked on in the page.
  const many = clouds(1100, 100);

  async function finished(run: UmapRun): Promise<number[]> {
    const heard: number[] = [];
    while (!run.isDone) {
      await run.next();
      heard.push((run.state?.done ?? 0) / (run.state?.total ?? 1));
    }
    return heard;
  }

  it('is answered alike by the worker and without one', async () => {
    const opened = workers.opened.length;
    const [here, there] = await Promise.all(
      [false, true].map(async worker => {
        const projector = new Projector(queueOf(worker));
        const found = await projector.components(() => ({ ...many, values: many.values.slice() }), 2, true);
        const run = projector.umap(found.features, found.scores, { neighbors: 5, seed: 4 });
        const heard = await finished(run);
        return { found, heard, state: run.state };
      })
    );
    expect(workers.opened.length).toBe(opened + 1);
    expect(there).toEqual(here);
    expect(here?.heard.length).toBeGreaterThan(3);
    expect(here?.heard).toEqual([...(here?.heard ?? [])].sort((a, b) => a - b));
    expect(here?.heard.at(-1)).toBe(1);
  });

  it('is stopped in the middle, and what there is stays', async () => {
    const { features, scores } = begun(many);
    const queue = queueOf(true);
    const run = new Projector(queue).umap(features, scores, { neighbors: 5, seed: 4 });
    await run.next();
    run.stop();
    await run.next();
    expect(run.isDone).toBe(false);
    expect(run.state?.coordinates).toHaveLength(2200);
    const { done } = run.state ?? {};
    // The worker has a turn for others again, and nothing of the run is left there.
    await expect(queue.ask('worker', { kind: 'advance', job: -1 }, [])).rejects.toMatchObject({
      code: 'lost'
    });
    expect(run.state?.done).toBe(done);
  });

  it('is answered in place when the worker breaks', async () => {
    const queue = new ProjectionQueue(() => Promise.resolve(workers.open(workers.missing)));
    queues.push(queue);
    const projector = new Projector(queue);
    let gathered = 0;
    const gather = (): IVectors => {
      gathered += 1;
      return { ...many, values: many.values.slice() };
    };
    const { features, scores, ratios } = await projector.components(gather, 2, false);
    expect(gathered).toBe(2);
    expect(ratios).toEqual(begun(many).ratios);
    await finished(projector.umap(features, scores, { neighbors: 5, seed: 4 }));
  });

  it('is refused after the page closed the queue', async () => {
    const queue = queueOf(false);
    queue.dispose();
    const projector = new Projector(queue);
    await expect(projector.components(() => many, 2, false)).rejects.toThrow(AggregateError);
    const { features, scores } = begun(clouds(10, 3));
    await expect(projector.umap(features, scores, { neighbors: 5, seed: 4 }).next()).rejects.toThrow(
      'The aggregation was closed. Open the view again.'
    );
  });
});

/** @jest-environment ./jest.environment.node.js */

import { readPicture } from '../../charts/__tests__/read-png';
import { COLORS } from '../../charts';
import type { StatisticsOptions, ViewOptions } from '../../protocol/views.generated';
import type { IMomentRow } from '../../store/__tests__/memory-moments';
import { MemoryRun } from '../../store/__tests__/memory-run';
import { readView, type IStill } from '../still';
import { loadModel } from './model';

type MapOptions = Omit<StatisticsOptions, 'view'>;

const NAMES = ['blocks.0.wo.weight', 'blocks.0.wq.weight', 'embed.weight', 'head.weight'];
const RANKS = [0, 1, 3];
const STEPS = [2, 4, 6];

/** Rank 1 has no head; rank 3 says the head of step 4 in two rows. A number that no other row has is in each. */
const ROWS: readonly IMomentRow[] = STEPS.flatMap(step =>
  RANKS.flatMap(rank =>
    NAMES.flatMap((name, at) => {
      const row = { step, rank, name, count: 10, std: 1 + step + 10 * rank + 100 * at };
      const isHead = name === 'head.weight';
      return isHead && rank === 1
        ? []
        : isHead && rank === 3 && step === 4
          ? [
              { ...row, stage: 0 },
              { ...row, stage: 1, mean: 7, count: 30 }
            ]
          : [row];
    })
  )
);

/** The root of the mean square of rows, as plain sums; null of none. */
function rmsOf(rows: readonly IMomentRow[]): number | null {
  const squares = rows.reduce(
    (sum, { std = 0, mean = 0, count = 0 }) => sum + count * (std ** 2 + mean ** 2),
    0
  );
  const count = rows.reduce((sum, row) => sum + (row.count ?? 0), 0);
  return count === 0 ? null : Math.sqrt(squares / count);
}

const runOf = (rows: readonly IMomentRow[]): MemoryRun => {
  const run = new MemoryRun();
  run.log(...[...rows].sort((a, b) => a.step - b.step));
  return run;
};

async function stills(options: MapOptions, rows = ROWS): Promise<readonly IStill[]> {
  return readView(runOf(rows), { view: 'statistics', kind: 'map', statistic: 'rms', ...options });
}

/** What the tips of a map say of the cells of its rows: a number, or what stands there instead. */
async function cells(options: MapOptions, xs: readonly number[], rows = ROWS): Promise<unknown[][]> {
  const { model, loaded } = await loadModel(runOf(rows), {
    view: 'statistics',
    kind: 'map',
    statistic: 'rms',
    ...options
  });
  const height = 'content' in loaded ? loaded.content.extent.y[1] + 0.5 : 0;
  const frame = { left: 0, top: 0, width: 400, height: 200, facet: {} };
  return Array.from({ length: height }, (_, y) =>
    xs.map(x => {
      const mark = model.probe({ frame, x, y, down: 0 });
      const [line] = (mark && model.tipOf(mark)?.lines) ?? [];
      const number = Number(line?.value.replace(/[\u2009\u202f]/g, '').replace('\u2212', '-'));
      return line?.value === '' ? line.name : Number.isFinite(number) ? number : line?.value;
    })
  );
}

/** The same from the rows. */
const expected = <R, C>(
  rows: readonly R[],
  columns: readonly C[],
  holds: (row: IMomentRow, r: R, c: C) => boolean,
  all = ROWS
): unknown[][] =>
  rows.map(r =>
    columns.map(c => {
      const value = rmsOf(all.filter(row => holds(row, r, c)));
      return value === null ? 'no data' : expect.closeTo(value, 5);
    })
  );

it('shortens the names of rows in a narrow picture, which else would be their names alone', async () => {
  const view: ViewOptions = { view: 'statistics', kind: 'map', statistic: 'rms', by: ['name'] };
  const [narrow] = await readView(runOf(ROWS), view, { width: 280 });
  expect(narrow?.recipe?.params['rowText']).toEqual([
    '…0.wo.weight',
    '…0.wq.weight',
    'embed.weight',
    'head.weight'
  ]);
});

it('maps tensors over ranks at one step, each cell all rows that fall in it, a rank without the tensor blank', async () => {
  const got = await cells({ by: ['name'], columns: 'rank', step: 4 }, [0, 1, 2, 3]);
  expect(got).toEqual(
    expected(
      NAMES,
      [0, 1, 2, 3],
      (row, name, rank) => row.step === 4 && row.name === name && row.rank === rank
    )
  );
  expect(got[3]).toEqual([expect.anything(), 'no data', 'no data', expect.anything()]);
  const [still] = await stills({ by: ['name'], columns: 'rank', step: 4 });
  expect(still?.title).toBe('Gradient RMS by tensor and rank, step 4');
  expect(still?.recipe?.texts).toMatchObject({ xTitle: 'rank', yTitle: 'tensor' });
  expect(still?.recipe?.params['rowText']).toEqual(NAMES);
  const { width, height, data } = readPicture(still?.recipe?.datasets['pictures']?.[0]?.['url']);
  const clear = Array.from({ length: width * height }, (_, at) => (data[4 * at + 3] === 0 ? 1 : 0));
  // What no rank 2 has, and the head of rank 1.
  expect(clear).toEqual([0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 1, 1, 0]);
});

it('maps tensors over steps of one rank, and ranks over steps of one tensor', async () => {
  expect(await cells({ by: ['name'], where: { rank: '3' } }, STEPS)).toEqual(
    expected(NAMES, STEPS, (row, name, step) => row.rank === 3 && row.name === name && row.step === step)
  );
  const ofHead = { by: ['rank'], where: { name: '^head\\.weight$' } } satisfies MapOptions;
  expect(await cells(ofHead, STEPS)).toEqual(
    expected(
      [0, 3],
      STEPS,
      (row, rank, step) => row.rank === rank && row.name === 'head.weight' && row.step === step
    )
  );
  const captions = await Promise.all(
    [{ where: { rank: '3' } }, ofHead].map(async each => (await stills(each))[0])
  );
  expect(captions.map(each => each?.caption[0])).toEqual(['Of rank 3 only.', 'Of head.weight only.']);
});

it('merges all ranks where none is chosen, and all tensors where the row is the total', async () => {
  expect(await cells({ by: ['name'] }, STEPS)).toEqual(
    expected(NAMES, STEPS, (row, name, step) => row.name === name && row.step === step)
  );
  expect(await cells({ by: [], columns: 'rank', step: 6 }, [0, 1, 3])).toEqual(
    expected([0], [0, 1, 3], (row, _, rank) => row.step === 6 && row.rank === rank)
  );
});

it('draws the step that was logged next to the chosen one, and says so', async () => {
  const [still] = await stills({ by: ['name'], columns: 'rank', step: 100 });
  expect(still?.title).toContain('step 6');
  expect(still?.caption[0]).toBe('Nothing was logged at step 100; this is the nearest one.');
});

it('leaves a step of a row blank that only other rows have', async () => {
  const rows = ROWS.filter(row => row.name !== 'embed.weight' || row.step !== 4);
  expect((await cells({ by: ['name'] }, STEPS, rows))[2]).toEqual([
    expect.any(Number),
    'no data',
    expect.any(Number)
  ]);
});

it('hatches cells with values that are not finite', async () => {
  const rows = ROWS.map(row => (row.step === 4 && row.rank === 0 ? { ...row, nan: 2 } : row));
  const [still] = await stills({ by: ['name'], columns: 'rank', step: 4 }, rows);
  expect(still?.caption).toContain('Cells in which values are not finite are hatched.');
  const [first] = await cells({ by: ['name'], columns: 'rank', step: 4 }, [0, 1], rows);
  expect(first).toEqual([expect.stringContaining('(2 not finite)'), expect.any(Number)]);
});

it('says where nothing has a rank', async () => {
  const [still] = await stills(
    { by: ['name'], columns: 'rank' },
    ROWS.map(row => ({ ...row, rank: -1 }))
  );
  expect([still?.recipe, still?.caption]).toEqual([null, ['Nothing here has a rank.']]);
});

it('names as many of 500 rows as there is room for, and draws no more', async () => {
  const names = Array.from({ length: 600 }, (_, at) => `blocks.${at}.mlp.linear.weight`);
  const rows = names.flatMap((name, at) =>
    Array.from({ length: 64 }, (_, rank) => ({ step: 1, rank, name, count: 1, std: 1 + at }))
  );
  const [still] = await stills({ by: ['name'], columns: 'rank' }, rows);
  expect(still?.recipe?.params['rowText']).toHaveLength(46);
  expect(still?.caption).toContain('500 of 600 rows are drawn: those with the largest values.');
  const { width, height } = readPicture(still?.recipe?.datasets['pictures']?.[0]?.['url']);
  expect([width, height]).toEqual([64, 500]);
});

it.each(['linear', 'log'] as const)(
  'colours by how many deviations a cell lies from the mean: %s',
  async transform => {
    // 18 calm values, and one on either side.
    const stds = Array.from({ length: 18 }, (_, at) => 10 + at / 10).concat([11.6, 14, 20, 9, 4]);
    const rows = stds.map((std, rank) => ({ step: 1, rank, name: 'w', count: 1, std }));
    const [still] = await stills({ by: ['name'], columns: 'rank', colors: 'sigma', transform }, rows);
    const { data } = readPicture(still?.recipe?.datasets['pictures']?.[0]?.['url']);
    const drawn = stds.map((_, at) => data.subarray(4 * at, 4 * at + 3).join());
    const low = Math.min(...stds);
    // Logarithms as the house's scale has them: linear below its knee.
    const knee = 20 / 10 ** Math.max(1, Math.ceil(Math.log10(20 / low)));
    const of = transform === 'linear' ? stds : stds.map(std => Math.log1p(std / knee));
    const mean = of.reduce((sum, each) => sum + each, 0) / of.length;
    const sigma = Math.sqrt(of.reduce((sum, each) => sum + (each - mean) ** 2, 0) / of.length);
    const bands = of.map(
      each => Math.sign(each - mean) * Math.min(3, Math.floor(Math.abs(each - mean) / sigma))
    );
    const colors = new Map(bands.map((band, at) => [band, drawn[at]]));
    expect(drawn).toEqual(bands.map(band => colors.get(band)));
    expect(new Set(colors.values()).size).toBe(colors.size);
    expect(colors.size).toBeGreaterThan(3);
    const texts = still?.recipe?.params['legendText'] as string[];
    expect(texts.map(text => /\((.*)\)/.exec(text)?.[1])).toEqual(['−3σ', '−2σ', '−1σ', '+1σ', '+2σ', '+3σ']);
    expect(still?.inDark?.().datasets['legend']?.[64]?.['color']).not.toBe(COLORS.diverging[16]);
  }
);

it('gives one colour where all cells are the same', async () => {
  const rows = [0, 1, 2].map(rank => ({ step: 1, rank, name: 'w', count: 1, std: 0.1 }));
  const [still] = await stills({ by: ['name'], columns: 'rank', colors: 'sigma' }, rows);
  const { data } = readPicture(still?.recipe?.datasets['pictures']?.[0]?.['url']);
  expect(new Set([0, 1, 2].map(at => data.subarray(4 * at, 4 * at + 3).join())).size).toBe(1);
});

describe('lines of chosen cells', () => {
  const pointsOf = (still: IStill | undefined): Record<string, [unknown, unknown][]> => {
    const found: Record<string, [unknown, unknown][]> = {};
    for (const { name, x, value } of still?.recipe?.datasets['rows'] ?? []) {
      (found[String(name)] ??= []).push([x, value]);
    }
    return found;
  };
  const over = (xs: readonly number[], holds: (row: IMomentRow, x: number) => boolean): unknown[] =>
    xs.map(x => [x, expect.closeTo(rmsOf(ROWS.filter(row => holds(row, x))) ?? NaN, 5)]);

  it('go over steps from a map at one step', async () => {
    const [, lines] = await stills({
      by: ['name'],
      columns: 'rank',
      step: 4,
      cells: ['["embed.weight",1]', '["head.weight",3]']
    });
    expect(pointsOf(lines)).toEqual({
      'embed.weight · rank 1': over(
        STEPS,
        (row, x) => row.name === 'embed.weight' && row.rank === 1 && row.step === x
      ),
      'head.weight · rank 3': over(
        STEPS,
        (row, x) => row.name === 'head.weight' && row.rank === 3 && row.step === x
      )
    });
    expect(lines?.title).toBe('Gradient RMS by tensor and rank, steps 2 to 6');
  });

  it('go over ranks from a map of one rank', async () => {
    const [, lines] = await stills({
      by: ['name'],
      where: { rank: '0' },
      cells: ['["embed.weight",2]', '["embed.weight",6]', '["head.weight",6]']
    });
    const of = (name: string, step: number, ranks = RANKS): unknown[] =>
      over(ranks, (row, x) => row.name === name && row.step === step && row.rank === x);
    expect(pointsOf(lines)).toEqual({
      'embed.weight · step 2': of('embed.weight', 2),
      'embed.weight · step 6': of('embed.weight', 6),
      'head.weight · step 6': of('head.weight', 6, [0, 3])
    });
    expect(lines?.recipe?.texts['xTitle']).toBe('rank');
  });

  it('go over tensors from a map of one tensor', async () => {
    const [, lines] = await stills({ by: ['rank'], where: { name: '^embed\\.weight$' }, cells: ['[1,4]'] });
    expect(pointsOf(lines)).toEqual({
      'rank 1 · step 4': over(
        [0, 1, 2],
        (row, x) => row.rank === 1 && row.step === 4 && row.name === NAMES[x]
      )
    });
    expect(lines?.recipe?.texts['xLabel']).toContain('embed.weight');
  });

  it('go over steps from a map over steps of all ranks, a line for a row however many of its cells are chosen', async () => {
    const options: MapOptions = { by: ['name'], cells: ['["embed.weight",2]', '["embed.weight",6]'] };
    const [, lines] = await stills(options);
    expect(Object.keys(pointsOf(lines))).toEqual(['embed.weight']);
    const [, across] = await stills({ ...options, along: 'rank' });
    expect(Object.keys(pointsOf(across))).toEqual(['embed.weight · step 2', 'embed.weight · step 6']);
  });

  it('are none of cells of another map', async () => {
    expect(await stills({ by: ['name'], cells: ['[1,2,3]', 'nonsense', '[{},1]'] })).toHaveLength(1);
  });
});

it('tells the event of a map: what is not finite first, a spike with its steps, its row and its end', async () => {
  const rows = NAMES.flatMap(name =>
    Array.from({ length: 60 }, (_, step) => ({
      ...{ step, rank: 0, name, count: 10, nan: name === 'embed.weight' && step === 50 ? 3 : 0 },
      std: name === 'blocks.0.wq.weight' && step === 30 ? 9 : 1
    }))
  ).sort((a, b) => a.step - b.step);
  const [still] = await stills({ by: ['name'] }, rows);
  const words = still?.summary.replace(/\u202f/g, ' ');
  expect(words).toMatch(/^Not finite first at step 50 in embed\.weight\./);
  expect(words).toContain('rose from 1 to 9 between step 29 and 30 in blocks.0.wq.weight');
  expect(words).toContain('was back at step 31');
  expect(words).toMatch(/The largest magnitude, 9, is at step 30 in blocks\.0\.wq\.weight\.$/);
});

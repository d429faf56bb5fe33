/** @jest-environment ./jest.environment.node.js */

import { zlibSync } from 'fflate';
import type { ViewOptions } from '../../protocol/views.generated';
import { drawSVG, LIGHT_THEME } from '../../charts';
import { ClientError } from '../../client/rest';
import type { IRunReader } from '../../client/run-reader';
import { MemoryRun } from '../../store/__tests__/memory-run';
import { readView } from '../../views/still';
import type { IPageData } from '../stored-run';
import { readPageRun } from '../page-data';
import { buildReport, MOST_BYTES, type IReportJob } from '../report';
import { detailOf, fakeReader, rowOf } from './fake-reader';

const FLAG = 'MLP1_mat_mul';
const [POSITIONS, TILES] = [64, 16];
const ROWS = Array.from({ length: 40 }, (_, at) =>
  rowOf({
    step: at + 1,
    shape: [1, POSITIONS, TILES],
    values: Float32Array.from({ length: POSITIONS * TILES }, (__, cell) => Math.sin(cell + at))
  })
);
/** What a step takes of a page, about. */
const STEP_BYTES = 4 * POSITIONS * TILES * 0.66;
const HEATMAP: ViewOptions = { view: 'heatmap', flag: FLAG, layers: '0', step: 11 };

/** Make a report in which about so many steps have room beside the script. */
async function made(
  steps: number,
  more: Partial<IReportJob> = {},
  reader: IRunReader = fakeReader(ROWS)
): Promise<string> {
  const script = ' '.repeat(Math.max(0, MOST_BYTES - 300_000 - Math.round((steps + 0.5) * STEP_BYTES)));
  const request: IReportJob = {
    run: 'r1',
    views: [HEATMAP],
    title: null,
    format: 'html',
    folder: 'r1',
    made: 0,
    version: '1',
    traced: [],
    language: 'en',
    words: {},
    parts: { script, digests: [], style: '' },
    ...more
  };
  return buildReport(request, {
    open: () => Promise.resolve({ detail: detailOf(), reader }),
    progress: () => undefined,
    deflate: bytes => zlibSync(bytes, { level: 1 })
  });
}

/** Pictures of a run, as files. */
async function drawnSVG(): Promise<string[]> {
  const run = new MemoryRun();
  run.add(...[1, 2, 3].map(step => ({ step, layer: 0, values: new Float32Array(6).fill(step) })));
  run.units = { loss: '' };
  run.numbers = [1, 2, 3].map(step => ({ step, name: 'loss', value: step }));
  const views: ViewOptions[] = [
    { view: 'heatmap', flag: FLAG, layers: 'all' },
    { view: 'trend', flag: FLAG },
    { view: 'trend', flag: FLAG, kind: 'heatmap' },
    { view: 'scalars' }
  ];
  const recipes = (await Promise.all(views.map(view => readView(run, view))))
    .flat()
    .map(still => still.recipe);
  expect(recipes.filter(recipe => recipe === null)).toEqual([]);
  return Promise.all(recipes.flatMap(recipe => (recipe ? [drawSVG(recipe, { theme: LIGHT_THEME })] : [])));
}

async function heldSteps(page: string): Promise<readonly number[]> {
  const [, json = ''] = /id="megalens-data">(.*?)<\/script>/s.exec(page) ?? [];
  const [run] = (JSON.parse(json) as IPageData).runs;
  const held = run && (await readPageRun(run));
  return (await held?.steps(FLAG, 'train', { layers: [0] })) ?? [];
}

describe('a view that cannot be read or drawn', () => {
  const whole = fakeReader(ROWS);
  const damaged: IRunReader = {
    ...whole,
    stream: (run, stream, query) =>
      stream === 'scalars'
        ? Promise.reject(new ClientError('refused', 'scalars.parquet is damaged.', { status: 409 }))
        : whole.stream(run, stream, query)
  };

  it.each([
    ['html' as const, [{ view: 'scalars' } as const, HEATMAP]],
    ['ipynb' as const, [{ view: 'scalars' } as const, HEATMAP]],
    ['html' as const, null]
  ])('is said in its place, and the others stand: %s of %j', async (format, views) => {
    const traced = [{ flag: FLAG, compressor: 'NoOp()', first: 1, last: 40, steps: 40, layers: [0] }];
    const text = await made(1, { format, views, traced }, damaged);
    expect(text).toMatch(/This could not be drawn\. .*scalars\.parquet is damaged\./);
    expect(text).toContain('step 11'.replace('11', views === null ? '40' : '11'));
    expect(text).toContain('<svg');
  });
});

it.each(['constructor', 'toString', '__proto__', 'a\u2028b', 'a\nb', 'a\u0000b', '"; x(', '${x}'])(
  'draws scalars of the unit %j',
  async unit => {
    const run = new MemoryRun();
    run.units = { loss: unit };
    run.numbers = [1, 2, 3].map(step => ({ step, name: 'loss', value: step }));
    const [still] = await readView(run, { view: 'scalars' });
    expect(still?.recipe && (await drawSVG(still.recipe, { theme: LIGHT_THEME }))).toContain('<svg');
  }
);

it('names every picture for screen readers, and hides the marks in it', async () => {
  const page = await made(1, {
    views: [HEATMAP, { view: 'trend', flag: FLAG }, { view: 'trend', flag: FLAG, kind: 'heatmap' }]
  });
  const figures = page.split('<figure').slice(1);
  expect(figures).toHaveLength(3);
  for (const figure of figures) {
    expect(figure).toMatch(/<div class="picture" role="img" aria-label="[^"]+">/);
    expect(figure.match(/<svg /g)).toHaveLength(figure.match(/<svg aria-hidden="true" /g)?.length ?? 0);
    // A name that repeats the picture's own bytes would double the file.
    expect(figure).not.toMatch(/aria-label="[^"]*base64/);
  }
});

it('names or hides each symbol of an exported picture', async () => {
  const svgs = await drawnSVG();
  for (const tag of svgs.flatMap(svg => svg.match(/<\w+(?:\s+[\w:-]+="[^"]*")*\s*\/?>/g) ?? [])) {
    expect(tag).not.toMatch(/^(?!.* aria-label="[^"]).*role="(img|graphics-symbol|graphics-document)"/s);
  }
});

describe('other steps of a slider', () => {
  it('are held where there is room for them: the first, the last and the drawn one among few', async () => {
    const page = await made(4);
    expect(await heldSteps(page)).toEqual([1, 11, 27, 40]);
    expect(page).toContain(
      'This page holds steps 1, 11, 27 and 40, 4 of 40 traced steps; the others were left out.'
    );
  });

  it.each([0, 1])('are not held where there is room for %i', async steps => {
    const page = await made(steps);
    expect(await heldSteps(page)).toEqual([11]);
    expect(page).toContain('This page holds step 11, 1 of 40 traced steps; the others were left out.');
  });

  it('are no more than a slider has places for, however much room there is', async () => {
    const steps = await heldSteps(await made(400));
    expect(steps).toHaveLength(24);
    expect(steps).toEqual(expect.arrayContaining([1, 11, 40]));
  });

  it('are not read for a notebook, which draws one', async () => {
    const text = await made(400, { format: 'ipynb' });
    expect(text).toContain('step 11');
    expect(text).not.toContain('This page holds');
  });
});

it('says what happened in words in a digest, each thing once, where no text of a run is markup', async () => {
  const text = await made(8, { views: [HEATMAP, HEATMAP], format: 'md', title: 'a *bold* name' });
  expect(text).toMatch(/^# a \\\*bold\\\* name\n/);
  expect(text.match(/^## .*$/gm)).toHaveLength(1);
  const sizes = Array.from(ROWS[10]?.values ?? [], Math.abs);
  const largest = sizes.indexOf(Math.max(...sizes));
  const [position, tile] = [Math.floor(largest / TILES), largest % TILES];
  expect(text).toContain(`is in layer 0 at position ${position}, tile ${tile}.`);
});

it('a tensor that is traced as a histogram is drawn over steps where nobody chose views', async () => {
  const compressor = 'Histogram(bins=4, log=True, tiles=1, limit=1.0)';
  const counts = { shape: [1, 1, 9], values: Float32Array.of(1, 2, 3, 4, 5, 4, 3, 2, 1), compressor };
  const reader = fakeReader([1, 2, 3].map(step => rowOf({ step, ...counts })));
  const traced = [{ flag: FLAG, compressor, first: 1, last: 3, steps: 3, layers: [0] }];
  const text = await made(1, { views: null, traced, format: 'md' }, reader);
  expect(text).toContain('Distribution of');
  expect(text).not.toContain('bin 4');
});

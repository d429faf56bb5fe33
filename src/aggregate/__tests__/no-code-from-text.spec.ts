/** @jest-environment ./jest.environment.node.js */
import { execFileSync } from 'child_process';
import { buildSync } from 'esbuild';
import { mkdtempSync, rmSync, writeFileSync } from 'fs';
import { tmpdir } from 'os';
import { join } from 'path';

/** What a report and the kernel's engine ask of aggregation, as a script of its own. */
const ASKED = `
  import { decimate, groupMoments, loadTables, MomentCache, scalarLines, trend, WorkQueue } from './index.mjs';
  const rows = 240;
  const column = read => Float64Array.from({ length: rows }, (_, at) => read(at));
  const names = ['layers.0.w', 'layers.1.w'];
  const part = stat => ({
    stat: Array(rows).fill(stat), names, nameId: Int32Array.from({ length: rows }, (_, at) => at % 2),
    step: column(at => 1 + (at >> 1)), samples: column(() => -1), rank: new Int32Array(rows), stage: new Int32Array(rows), gradientStage: new Int32Array(rows),
    count: column(() => 4), mean: column(Math.sin), m2: column(() => 1), m3: column(() => 0), m4: column(() => 3),
    min: column(() => -1), max: column(() => 1), nanCount: column(() => 0), infCount: column(() => 0), nearZeroCount: column(() => 0),
    rounding: column(() => 0), lossScale: column(() => 1)
  });
  const about = stat => ({ stat, rows, first: 1, last: rows / 2, steps: rows / 2 });
  const source = {
    index: async () => ({ version: '1', stats: [about('grad'), about('param')], names, samples: false, warnings: [] }),
    rows: async ({ stats: [stat] }) => part(stat)
  };
  const cache = new MomentCache(new WorkQueue(async () => null));
  const ask = more => groupMoments(source, { stat: 'grad', statistic: 'kurtosis', by: ['layer'], ...more }, undefined, cache);
  const groups = await ask({ show: 'percent', smoothing: 5, series: 1, points: 20, steps: [10, 50] });
  const ratio = await ask({ statistic: 'l2', ratio: 'grad_to_param' });
  const scalars = scalarLines(
    { step: Float64Array.of(1, 2), time: Float64Array.of(1, 2), value: Float64Array.of(3, 5), name: ['loss', 'loss'], units: { loss: '' } },
    {}
  );
  const means = trend([{ step: 1, layer: 1, values: Float32Array.of(1, 3), shape: [1, 2], compressor: '', whole: null }], 'mean');
  let made = 'code';
  try { new Function('return 1')(); } catch { made = 'nothing'; }
  const { groupTable, shapeTable, tableCsv } = await loadTables();
  const table = groupTable(ratio, ['layer']);
  const csv = tableCsv(shapeTable(table, ['layer'], {}));
  let refused = '';
  try { shapeTable(table, ['layer'], { filter: 'd.value > 0' }); } catch (error) { refused = error.code; }
  console.log(JSON.stringify({
    made, groups: groups.value.length, ratio: ratio.value.length, scalars: scalars[0].values[1], mean: means.value[0],
    kept: decimate(means.step, means.value, 4).of, csv: csv.split('\\n').length, refused
  }));
`;

describe('aggregation without code from text', () => {
  const folder = mkdtempSync(join(tmpdir(), 'megalens-plain-'));
  afterAll(() => rmSync(folder, { recursive: true }));

  const { metafile } = buildSync({
    entryPoints: ['src/aggregate/index.ts'],
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'node',
    outdir: folder,
    outExtension: { '.js': '.mjs' },
    external: ['./open-worker'],
    metafile: true
  });

  it('has arquero in a part of its own, which is loaded on first use', () => {
    const parts = Object.entries(metafile.outputs);
    const withArquero = parts.filter(([, { inputs }]) =>
      Object.keys(inputs).some(path => path.includes('arquero/'))
    );
    const first = parts.find(([, { entryPoint }]) => entryPoint === 'src/aggregate/index.ts')?.[1];
    expect(withArquero.length).toBeGreaterThan(0);
    const names = new Set(withArquero.map(([name]) => name));
    const reached = new Set<string>();
    const follow = (imports: readonly { path: string; kind: string }[]): void =>
      imports
        .filter(({ kind, path }) => kind === 'import-statement' && !reached.has(path))
        .forEach(({ path }) => {
          reached.add(path);
          follow(metafile.outputs[path]?.imports ?? []);
        });
    follow(first?.imports ?? []);
    expect([...reached].filter(path => names.has(path))).toEqual([]);
  });

  it('groups, shapes, merges and writes all that a report asks for, and says that lines of a table are not followed', () => {
    writeFileSync(join(folder, 'asked.mjs'), ASKED);
    const said = execFileSync(process.execPath, ['--disallow-code-generation-from-strings', 'asked.mjs'], {
      cwd: folder
    }).toString();
    expect(JSON.parse(said)).toEqual({
      made: 'nothing',
      groups: expect.any(Number),
      ratio: 240,
      scalars: 5,
      mean: 2,
      kept: 1,
      csv: 242,
      refused: 'frozen'
    });
    expect(JSON.parse(said).groups).toBeGreaterThan(1);
  });
});

/** @jest-environment ./jest.environment.node.js */
import { execFileSync } from 'child_process';
import { buildSync } from 'esbuild';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'fs';
import { tmpdir } from 'os';
import { join, resolve } from 'path';
import { groupMoments } from '../../aggregate';
import { aq } from '../../aggregate/arquero';
import { groupTable, shapeTable } from '../../aggregate/group-table';
import { fullViewOptions } from '../../protocol/view-options';
import type { StatisticsOptions } from '../../protocol/views.generated';
import { toArquero } from '../statistics/arquero-code';
import type { MomentOptions } from '../statistics/words';
import { RowSource, type IRow } from '../../aggregate/__tests__/moment-rows';

const KINDS = ['mlp.linear_fc1', 'mlp.linear_fc2', 'attention.proj'];

/** A run with gaps, tensors that diverge, raw sums, and stats of every kind. */
const ROWS: IRow[] = (['grad', 'param', 'activation', 'dgrad'] as const).flatMap((stat, of) =>
  Array.from({ length: 12 }, (_, at) => at + 1).flatMap(step =>
    [0, 1, 2, 10].flatMap(layer =>
      KINDS.flatMap((kind, at) =>
        (of < 2 ? ['.weight'] : ['/input0', '/output0']).flatMap((end, side): IRow[] =>
          step % 5 === at && of !== 1
            ? []
            : [
                {
                  stat,
                  name: `decoder.layers.${layer}.${kind}${end}`,
                  step,
                  samples: 8 * step,
                  rank: layer % 2,
                  stage: layer > 1 ? 1 : -1,
                  count: 4 + at,
                  mean: Math.sin(step + 3.1 * layer + 0.7 * at + of + side),
                  m2: 1 + Math.cos(step + layer) ** 2,
                  m3: Math.sin(step * layer),
                  m4: 3 + at + step / 7,
                  min: -layer,
                  max: step,
                  nanCount: layer === 2 && step === 7 && at === 0 ? 3 : 0,
                  rounding: layer === 10 ? 2 ** -24 : 0
                }
              ]
        )
      )
    )
  )
);

const CASES: readonly Omit<StatisticsOptions, 'view'>[] = [
  { by: ['layer'] },
  { by: [], statistic: 'kurtosis', series: 40 },
  { by: ['layer', 'family'], statistic: 'skewness', where: { layer: '0-2,10', family: ['mlp'] } },
  { by: ['name'], statistic: 'min', where: { name: 'fc1', rank: '1' }, steps: [3, 9] },
  { by: ['stage', 'rank'], stat: 'param', statistic: 'std' },
  { by: ['capture'], pattern: 'layers\\.(\\d+)\\.(mlp|attention)', statistic: 'nonfinite' },
  {
    by: ['kind'],
    stat: 'activation',
    statistic: 'rms',
    where: { role: ['output'] },
    show: 'relative',
    steps: [4, 12]
  },
  { by: ['layer'], show: 'percent', smoothing: 3 },
  { by: ['name'], show: 'delta', statistic: 'mean', series: 5, steps: [2, 8] },
  { by: ['layer'], ratio: 'grad_to_param' },
  { by: ['layer', 'kind'], ratio: 'gain', stat: 'activation', statistic: 'rms' },
  { by: ['layer'], ratio: 'gain', stat: 'dgrad', where: { role: ['input'], stack: ['decoder.layers'] } },
  {
    by: ['layer'],
    derive: 'share = d.value / op.max(d.value); moved = d.value - op.lag(d.value, 1, NaN)',
    filter: 'd.share > 0.5 && d.layer !== 2'
  }
];

const full = (options: Omit<StatisticsOptions, 'view'>): MomentOptions =>
  fullViewOptions({ view: 'statistics', ...options }) as MomentOptions;

/** Rows of a table in an order that does not depend on how texts are put in order, with numbers of 11 digits. */
function lines(rows: readonly object[]): string[] {
  return rows
    .map(row =>
      JSON.stringify(row, (_, value: unknown) =>
        typeof value !== 'number'
          ? value
          : Number.isFinite(value)
            ? Number(value.toPrecision(11)) + 0
            : String(value)
      )
    )
    .sort();
}

describe('code for arquero', () => {
  const folder = mkdtempSync(join(tmpdir(), 'megalens-arquero-'));
  afterAll(() => rmSync(folder, { recursive: true }));

  beforeAll(() => {
    const room = join(folder, 'node_modules/megalens');
    mkdirSync(room, { recursive: true });
    for (const name of ['arquero', 'acorn', '@uwdata']) {
      symlinkSync(resolve('node_modules', name), join(folder, 'node_modules', name));
    }
    writeFileSync(
      join(room, 'package.json'),
      JSON.stringify({ exports: { './aggregate': './aggregate.mjs' } })
    );
    buildSync({
      entryPoints: ['src/aggregate/arquero.ts'],
      bundle: true,
      format: 'esm',
      platform: 'neutral',
      external: ['arquero'],
      outfile: join(room, 'aggregate.mjs')
    });
    writeFileSync(join(folder, 'moments.arrow'), arrowOf(ROWS));
  });

  const node = (file: string): string =>
    execFileSync(process.execPath, [file], { cwd: folder, maxBuffer: 1 << 28 }).toString();

  it('runs as the documentation says', () => {
    const code = /```ts\n([^]*?)```/.exec(readFileSync('docs/statistics.md', 'utf8'))?.[1] ?? '';
    writeFileSync(join(folder, 'documented.mjs'), code);
    const [head, first, ...rest] = node('documented.mjs').trim().split('\n');
    expect(head).toBe('layer,step,rms,kurtosis,off');
    expect(first).toMatch(/^0,1,[\d.]+,[\d.]+,0$/);
    expect(rest).toHaveLength(47);
  });

  it('gives in Node the table that the explorer shows, whatever was chosen', async () => {
    const codes = await Promise.all(CASES.map(options => toArquero(full(options))));
    codes.forEach((code, at) =>
      writeFileSync(join(folder, `case-${at}.mjs`), `${code}\nexport default table.objects();\n`)
    );
    writeFileSync(
      join(folder, 'all.mjs'),
      `const all = [];
       for (let at = 0; at < ${codes.length}; at += 1) {
         all.push((await import('./case-' + at + '.mjs').catch(error => { throw new Error('case ' + at + ': ' + error.stack); })).default);
       }
       const plain = (_, value) => typeof value === 'number' && !Number.isFinite(value) ? { is: String(value) } : value;
       process.stdout.write(JSON.stringify(all, plain));`
    );
    const said = node('all.mjs');
    const numbers = (_: string, value: { is?: string } | null): unknown =>
      value !== null && typeof value === 'object' && typeof value.is === 'string' ? Number(value.is) : value;
    const found = JSON.parse(said, numbers) as object[][];
    for (const [at, given] of CASES.entries()) {
      const options = full(given);
      const by = options.by ?? [];
      const groups = await groupMoments(new RowSource(ROWS), { ...options, by, where: options.where ?? {} });
      const wanted = shapeTable(groupTable(groups, by), by, options);
      expect([given, lines(found[at] ?? [])]).toEqual([given, lines(wanted.objects())]);
      expect(wanted.numRows()).toBeGreaterThan(0);
    }
  });
});

/** Rows as the bytes of a recording's file. */
function arrowOf(rows: readonly IRow[]): Uint8Array {
  const of = (read: (row: IRow) => unknown): unknown[] => rows.map(read);
  return aq
    .table({
      step: of(row => row.step),
      samples: of(row => row.samples),
      stat: of(row => row.stat),
      name: of(row => row.name),
      rank: of(row => row.rank),
      stage: of(row => row.stage),
      count: of(row => row.count),
      mean: of(row => row.mean),
      m2: of(row => row.m2),
      m3: of(row => row.m3),
      m4: of(row => row.m4),
      min: of(row => row.min),
      max: of(row => row.max),
      nan_count: of(row => row.nanCount),
      inf_count: of(() => 0),
      rounding: of(row => row.rounding)
    })
    .toArrowIPC({ format: 'stream' });
}

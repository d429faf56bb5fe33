import { WORDS } from '../../aggregate/moment-keys';
import { loadTables } from '../../aggregate';
import { readRanges } from '../../protocol/ranges';
import { fullViewOptions } from '../../protocol/view-options';
import type { MomentColumn } from '../../store/row-moments';
import type { MomentOptions } from './words';

const OF_ROWS: readonly string[] = ['rank', 'stage', 'name', 'capture'];

/**
 * Write what the explorer's table shows as code that makes it of the stream's rows with arquero: the same
 * merging, filters, ratio, first values, trailing mean, and lines that a person wrote. Steps that the
 * explorer leaves out of a long table are there.
 *
 * @throws AggregateError where the lines below the table are refused.
 */
export async function toArquero(options: MomentOptions): Promise<string> {
  // What is written below as it is, words of the contract and numbers, is that.
  fullViewOptions(options);
  const { by, statistic, ratio, show, smoothing, series, derive, filter } = options;
  const columns = by ?? [];
  const { readDerive, readFilter, tableColumns } = await loadTables();
  const keys = columns.map(text);
  const grouped = keys.length > 0 ? `.groupby(${keys.join(', ')})` : '';
  const shaped = show !== 'raw' || smoothing > 1;
  const cut = options.steps
    ? `.filter(d => d.step >= ${options.steps[0]} && d.step <= ${options.steps[1]})`
    : '';
  const early = shaped ? '' : cut;
  const merge = [
    `.groupby(${[...keys, "'step'"].join(', ')})`,
    '.rollup({',
    '  samples: d => op.max(d.samples),',
    `  value: moments.${statistic}(),`,
    '  count: moments.count(),',
    '  nonfinite: moments.nonfinite(),',
    `  error: moments.error(${text(statistic)})`,
    '})'
  ];
  const known = tableColumns(columns);
  const made = derive?.trim() ? readDerive(derive, known) : [];
  const all = { ...known, ...Object.fromEntries(made.map(({ name, type }) => [name, type])) };
  const groups =
    ratio === 'none'
      ? ['const groups = rows', ...indent([...selected(options, options.stat, ''), early, ...merge])]
      : ratioOf(options, early, merge);
  const lines = [
    ...(columns.length > 0 ? largest(series, keys, shaped ? cut : '') : []),
    ...(shaped
      ? [".orderby('step')", ...(grouped ? [grouped] : []), ...shownBy(show), ...smoothed(smoothing), cut]
      : []),
    ...(grouped && made.length + (filter?.trim() ? 1 : 0) > 0 ? [".orderby('step')", grouped] : []),
    ...made.map(({ name, code }) => `.derive({ ${name}: ${code} })`),
    ...(filter?.trim() ? [`.filter(${readFilter(filter, all).code})`] : []),
    `.ungroup()`,
    `.orderby(${[...keys, "'step'"].join(', ')})`,
    `.select(${[...columns, 'step', 'samples', 'value', 'count', 'nonfinite', 'error', ...made.map(({ name }) => name)].map(text).join(', ')})`,
    '.reify()'
  ];
  return [
    "import { aq, moments } from 'megalens/aggregate';",
    '',
    'const { op } = aq;',
    '// Rows of the stream `moments` as Arrow. Of the recording in the folder RUN, in Python:',
    "// pyarrow.feather.write_feather(megalens.open('RUN').table('moments'), 'moments.arrow', 'uncompressed')",
    "const rows = await aq.loadArrow('moments.arrow');",
    ...groups.filter(Boolean).map((line, at, every) => (at === every.length - 1 ? `${line};` : line)),
    'const table = groups',
    ...indent(lines).map((line, at, every) => (at === every.length - 1 ? `${line};` : line)),
    ''
  ].join('\n');
}

const text = (value: string): string =>
  `'${JSON.stringify(value).slice(1, -1).replace(/\\"/g, '"').replace(/'/g, "\\'")}'`;

const indent = (lines: readonly string[]): string[] => lines.filter(Boolean).map(line => `  ${line}`);

/** The rows that take part, with the columns that group them. */
function selected(options: MomentOptions, stat: string, side: '' | 'input' | 'output'): string[] {
  const where = options.where ?? {};
  const by: readonly MomentColumn[] = options.by ?? [];
  const { pattern } = options;
  const tests = [
    ...(['layer', 'expert', 'rank', 'stage'] as const).map(column => ranges(column, where[column])),
    ...WORDS.map(column => {
      const wanted: readonly string[] | undefined = where[column];
      const isSide = side !== '' && column === 'role';
      return wanted && !isSide ? `op.includes(${JSON.stringify(wanted)}, d.${column})` : '';
    }),
    pattern && by.includes('capture') ? 'd.capture !== null' : ''
  ].filter(Boolean);
  const named = [
    ...by,
    ...WORDS.filter(column => where[column] && (side === '' || column !== 'role')),
    'layer',
    'expert'
  ].filter(
    (column, at, every) =>
      !OF_ROWS.includes(column) &&
      every.indexOf(column) === at &&
      (by.includes(column as MomentColumn) || Object.hasOwn(where, column))
  );
  const ofRows = (['rank', 'stage'] as const).filter(column => by.includes(column));
  return [
    `.filter(d => d.stat === ${text(stat)})`,
    ...(side === ''
      ? []
      : [
          ".derive(moments.names('role'))",
          `.filter(d => d.role === '${side}')`,
          // A module's name is that of its tensor without the last part.
          ".derive({ name: d => op.replace(d.name, /[./][^./]*$/, '') })"
        ]),
    ...(named.length > 0 ? [`.derive(moments.names(${named.map(text).join(', ')}))`] : []),
    ...(pattern && by.includes('capture') ? [`.derive({ capture: moments.capture(${text(pattern)}) })`] : []),
    ...(where.name ? [`.filter(moments.has(${text(where.name)}))`] : []),
    ...(tests.length > 0 ? [`.filter(d => ${tests.join(' && ')})`] : []),
    ...ofRows.map(column => `.derive({ ${column}: d => (d.${column} < 0 ? null : d.${column}) })`)
  ];
}

/** '0-3,7' as a test. */
function ranges(column: string, range: string | undefined): string {
  if (range === undefined || readRanges(range, column) === null) {
    return '';
  }
  const tests = (readRanges(range, column) ?? []).map(([low, high]) =>
    low === high ? `d.${column} === ${low}` : `(d.${column} >= ${low} && d.${column} <= ${high})`
  );
  return `d.${column} !== null && (${tests.join(' || ')})`;
}

/** Two sides of a ratio, merged apart and joined by key and step. */
function ratioOf(options: MomentOptions, early: string, merge: readonly string[]): string[] {
  const { ratio, stat } = options;
  const sides =
    ratio === 'grad_to_param'
      ? ([
          ['grad', ''],
          ['param', '']
        ] as const)
      : stat === 'dgrad'
        ? ([
            [stat, 'input'],
            [stat, 'output']
          ] as const)
        : ([
            [stat, 'output'],
            [stat, 'input']
          ] as const);
  const key = `d => \`\${${[...(options.by ?? []).map(column => `d.${column}`), 'd.step'].join('}|${')}}\``;
  const rows = sides.map(([of, side], at) => [
    `const ${at === 0 ? 'over' : 'under'} = rows`,
    ...indent([...selected(options, of, side), early]).map((line, index, every) =>
      index === every.length - 1 ? `${line};` : line
    )
  ]);
  const merged = (own: string, other: string): string[] => [
    // Only what both sides have.
    `${own}.semijoin(${other}, both)`,
    ...merge,
    `.derive({ key: ${key} })`
  ];
  return [
    ...rows.flat(),
    "const both = [['name', 'step'], ['name', 'step']];",
    'const below = ' + merged('under', 'over').join('\n  ') + ';',
    'const groups = ' + merged('over', 'under').join('\n  '),
    "  .join(below.select({ key: 'key', value: 'other', nonfinite: 'bad', error: 'off' }), 'key')",
    '  .derive({ error: d => op.abs(d.value / d.other) * ((d.error === 0 ? 0 : d.error / op.abs(d.value)) + (d.off === 0 ? 0 : d.off / op.abs(d.other))) })',
    '  .derive({ value: d => d.value / d.other, nonfinite: d => d.nonfinite + d.bad })'
  ];
}

/** The groups of the greatest magnitudes, those with values that are not finite first. */
function largest(series: number, keys: readonly string[], cut: string): string[] {
  const key = `d => \`\${${keys.map(each => `d[${each}]`).join('}|${')}}\``;
  return [
    `.derive({ group: ${key} })`,
    '.semijoin(',
    `  groups${cut}`,
    `    .derive({ group: ${key}, size: d => (d.nonfinite !== 0 ? Infinity : op.is_nan(d.value) ? -1 : op.abs(d.value)) })`,
    "    .groupby('group')",
    '    .rollup({ size: d => op.max(d.size) })',
    "    .orderby(aq.desc('size'))",
    `    .slice(0, ${series}),`,
    "  'group'",
    ')'
  ];
}

/** Values against the first finite one of their group. */
function shownBy(show: MomentOptions['show']): string[] {
  if (show === 'raw') {
    return [];
  }
  const scale =
    show === 'delta'
      ? '1'
      : `(d.first === 0 ? NaN : 1 / ${show === 'percent' ? 'op.abs(d.first)' : 'd.first'})`;
  const value = {
    relative: 'd.value / d.first',
    delta: 'd.value - d.first',
    percent: '((d.value - d.first) * 100) / op.abs(d.first)'
  }[show];
  return [
    '.derive({ first: d => (op.is_finite(d.value) ? d.value : null) })',
    '.derive({ first: d => op.fill_up(d.first, NaN) })',
    '.derive({ first: d => op.first_value(d.first) })',
    `.derive({ error: d => (d.error === 0 ? 0 : d.error * op.abs(${scale})${show === 'percent' ? ' * 100' : ''}) })`,
    show === 'delta'
      ? `.derive({ value: d => ${value} })`
      : `.derive({ value: d => (d.first === 0 ? NaN : ${value}) })`
  ];
}

/** A trailing mean of the finite values; the others stay as they are. */
function smoothed(points: number): string[] {
  return points < 2
    ? []
    : [
        '.derive({ finite: d => (op.is_finite(d.value) ? d.value : null) })',
        `.derive({ mean: aq.rolling(d => op.mean(d.finite), [${1 - points}, 0]) })`,
        '.derive({ value: d => (op.is_finite(d.value) ? d.mean : d.value) })'
      ];
}

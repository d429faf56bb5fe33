/** @jest-environment ./jest.environment.node.js */
import type { IMomentGroups } from '../../store';
import { AggregateError } from '..';
import { groupTable, shapeTable, tableColumns, tableCsv, type ITableLines, type Table } from '../group-table';
import { readDerive, readFilter } from '../table-expression';

const groups = (length: number): IMomentGroups => ({
  keys: [
    [0, 'a'],
    [1, 'b,"c"']
  ],
  group: Uint32Array.from({ length }, (_, at) => (at < length / 2 ? 0 : 1)),
  step: Float64Array.from({ length }, (_, at) => 1 + (at % (length / 2))),
  samples: new Float64Array(length).fill(-1),
  value: Float64Array.from({ length }, (_, at) => at * 10),
  count: new Float64Array(length).fill(4),
  nonFinite: Float64Array.from({ length }, (_, at) => (at === 3 ? NaN : 0)),
  error: new Float64Array(length),
  scaled: new Uint8Array(length),
  groupsTotal: 2,
  stepsTotal: length / 2
});
const BY = ['layer', 'name'] as const;
const shape = (lines: ITableLines, length = 8): Table =>
  shapeTable(groupTable(groups(length), BY), BY, lines);
const COLUMNS = tableColumns(BY);

describe('the derive and filter lines of a table', () => {
  it.each([
    ['twice = d.value * 2', [0, 20, 40, 60, 80, 100, 120, 140]],
    ['twice = d => d.value * 2', [0, 20, 40, 60, 80, 100, 120, 140]],
    ['share = d["value"] / op.max(d.value)', [0, 1 / 3, 2 / 3, 1, 4 / 7, 5 / 7, 6 / 7, 1]],
    ['moved = d.value - op.lag(d.value, 1, 0)', [0, 10, 10, 10, 40, 10, 10, 10]],
    ['big = d.value > op.mean(d.value) ? 1 : -1', [-1, -1, 1, 1, -1, -1, 1, 1]],
    ['x = 2; y = d.x ** 3 + Math.max(d.layer, 0)', [8, 8, 8, 8, 9, 9, 9, 9]],
    ['up = op.upper(d.name)', [...Array<string>(4).fill('A'), ...Array<string>(4).fill('B,"C"')]]
  ])('derives %s', (derive, wanted) => {
    const names = shape({ derive }).columnNames();
    expect(Array.from(shape({ derive }).array(names.at(-1) ?? ''))).toEqual(wanted);
  });

  it.each([
    ['d.layer < 1 && d.value >= 20', [20, 30]],
    ['op.startswith(d.name, "b") || d.step === 1', [0, 40, 50, 60, 70]],
    ['d => op.includes([1, 3], d.step)', [0, 20, 40, 60]],
    ['!op.is_finite(d.nonfinite)', [30]],
    ['op.rank() == 1', [0, 40]]
  ])('filters %s', (filter, wanted) => {
    expect(Array.from(shape({ filter }).array('value'))).toEqual(wanted);
  });

  it('filters by what was derived before', () => {
    expect(Array.from(shape({ derive: 'k = d.value / 10', filter: 'd.k > 5' }).array('value'))).toEqual([
      60, 70
    ]);
  });

  it('writes all digits, texts in quotes, and numbers that are not finite as pandas reads them', () => {
    const csv = tableCsv(shape({ derive: 'k = d.value / 0', filter: 'd.step === 4' }), { value: 'kurtosis' });
    expect(csv).toBe(
      'layer,name,step,samples,kurtosis,count,nonfinite,error,k\n0,a,4,-1,30,4,nan,0,inf\n1,"b,""c""",4,-1,70,4,0,0,inf\n'
    );
  });

  const HOSTILE = [
    'globalThis',
    'window.location',
    'this',
    'd',
    'd.constructor',
    'd["constructor"]',
    'd.__proto__',
    'd["va" + "lue"]',
    'd[op.lower("VALUE")]',
    'd.value.constructor',
    '"".constructor',
    '[].constructor.constructor("return 1")()',
    '(d.value).toString()',
    'op.constructor',
    'op.constructor("return globalThis")()',
    'op["mean"](d.value)',
    'op.__proto__',
    'op.hasOwnProperty("x")',
    'op.toString()',
    'Object.keys(d)',
    'Math.constructor("return 1")()',
    'Math.random()',
    'op.random()',
    'fetch("https://example.org")',
    'import("fs")',
    'import.meta',
    'require("fs")',
    'new Date()',
    'new Function("return 1")()',
    'Function("return 1")()',
    'eval("1")',
    '(() => 1)()',
    '() => { while (true) {} }',
    'd => { return 1 }',
    'd => { for (;;) {} }',
    'function () { return 1 }',
    'async d => 1',
    '({ constructor } ) => constructor',
    '(d, $) => $.x',
    'row',
    'data',
    'fn',
    '$',
    '`${d.name}`',
    'op.upper`x`',
    '/(a+)+$/.test(d.name)',
    'op.match(d.name, "(a+)+$")',
    'op.match(d.name, /(a+)+$/)',
    'op.replace(d.name, "a", "b")',
    'op.split(d.name, "")',
    'op.repeat(d.name, 1e9)',
    'op.padstart(d.name, 1e9)',
    'op.sequence(1e9)',
    'op.parse_json(d.name)',
    'op.row_object()',
    'op.array_agg(d.value)',
    'op.object_agg(d.name, d.value)',
    'd.name + d.name',
    '"a" + 1',
    'd.value = 3',
    'd.value++',
    'delete d.value',
    'typeof d.value',
    'void 0',
    '"value" in d',
    'd instanceof d',
    'd?.value',
    'op?.mean(d.value)',
    '{ a: 1 }',
    '({ a: 1 })',
    '[1, 2]',
    'op.mean(...[1])',
    'op.includes([d.value], 1)',
    '1n',
    'while (true) {}',
    'if (true) 1',
    'var x = 1',
    'throw 1',
    'x => x.value',
    '1, 2',
    'd.valeu',
    'yield 1',
    'await 1',
    '1; 2',
    '',
    ')',
    '1 +',
    '"\\u{110000}"',
    'x'.repeat(100_000),
    '-'.repeat(499) + '1',
    '('.repeat(250),
    `${'['.repeat(200)}${']'.repeat(200)}`
  ];

  it.each(HOSTILE)('refuses %.60s', text => {
    for (const line of [text, `d => ${text}`]) {
      if (/^d => (\(\) => 1)/.test(line)) {
        continue;
      }
      expect(() => readFilter(line, COLUMNS)).toThrow(AggregateError);
      expect(() => readDerive(`x = ${line}`, COLUMNS)).toThrow(AggregateError);
    }
  });

  it.each([
    'constructor = 1',
    '__proto__ = 1',
    'value = 1',
    'toString = 1',
    'd.x = 1',
    '[a] = [1]',
    '({ a } = d)',
    'x += 1',
    'x = 1; x = 2',
    Array.from({ length: 11 }, (_, at) => `x${at}=1`).join(';')
  ])('refuses to derive %s', line => expect(() => readDerive(line, COLUMNS)).toThrow(AggregateError));

  it('names the place of what it refuses', () => {
    expect(() => readFilter('d.value > 3 && d.valeu', COLUMNS)).toThrow(
      'The filter cannot have ‘d.valeu’ at character 16: a column must be one of layer, name, step, samples, value, count, nonfinite, error.'
    );
    expect(() => readDerive('x = d.value >', COLUMNS)).toThrow(/character 14: this could not be read/);
    expect(() => shape({ derive: 'x = op.mean(op.mean(d.value))' })).toThrow(AggregateError);
  });

  it('hands over nothing but what it wrote itself', () => {
    expect(readFilter('\\u0064.value > 0x10 /* d.constructor */', COLUMNS).code).toBe(
      'd => (d["value"] > 16)'
    );
    expect(readFilter('d.name === "\\u2028`${1}"', COLUMNS).code).toBe('d => (d["name"] === "\u2028`${1}")');
  });

  it('is done within seconds at the longest line that a table of 100,000 rows takes', () => {
    const line = Array.from(
      { length: 10 },
      (_, at) => `c${at} = op.median(d.value * ${at}) + op.rank()`
    ).join(';');
    const began = performance.now();
    expect(shape({ derive: line.slice(0, 500) }, 100_000).numCols()).toBe(18);
    expect(performance.now() - began).toBeLessThan(10_000);
  });
});

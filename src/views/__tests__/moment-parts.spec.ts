/** @jest-environment ./jest.environment.node.js */
import COLORS from '#protocol/charts/colors.json';
import { type IMomentGroups, type MomentKey, PRE_STEP } from '../../store/row-moments';
import { badStretches } from '../statistics/captions';
import { lineColors } from '../kits/lines/legend';
import { compareLines } from '../kits/lines/compare';
import { rowFilter, rowsCsv } from '../statistics/table-pane';
import { groupTable, tableCsv } from '../../aggregate/group-table';
import { Detail } from '../kits/lines/detail';
import type { ILine } from '../kits/lines/line';
import { lineRecipe } from '../kits/lines/line-recipe';
import { cellsOf } from '../statistics/map-cells';
import { movesOf } from '../statistics/cell-panes';
import { middleCut, shortName, shortNames } from '../shared/short-name';
import { MemoryMoments } from '../../store/__tests__/memory-moments';

const HATCHED = { hatch: true, bridge: true };

describe('short names', () => {
  it('are told apart where several would be shortened to the same text', () => {
    const names = ['wide', 'tall', 'deep'].map(
      way => `encoder_of_${way}_pictures_with_many_layers_of_attention`
    );
    expect(new Set(names.map(name => middleCut(name, 16))).size).toBe(1);
    const short = shortNames([...names, 'loss'], 16, middleCut);
    expect(short).toEqual(['…_of_wide_pictu…', '…_of_tall_pictu…', '…_of_deep_pictu…', 'loss']);
    expect(shortNames([names[0] ?? '', names[0] ?? ''], 16, middleCut)).toEqual(
      Array(2).fill(middleCut(names[0] ?? '', 16))
    );
  });

  it('keep their end and the numbers of layers and experts, which tell them apart', () => {
    const short = (name: string): string => shortName(name, 28);
    expect(short('decoder.layers.0.mlp.weight')).toBe('decoder.layers.0.mlp.weight');
    expect(short('decoder.layers.0.mlp.linear_fc1.weight')).toBe('…0.mlp.linear_fc1.weight');
    expect(short('decoder.layers.11.self_attention.linear_qkv.weight')).toBe('…11…linear_qkv.weight');
    expect(short('decoder.layers.3.mlp.experts.5.linear_fc1.weight')).toBe('…3…5.linear_fc1.weight');
    expect(short('x'.repeat(40))).toBe(`…${'x'.repeat(27)}`);
  });
});

const list = (...values: number[]): Float64Array => Float64Array.from(values);

/** Groups with the same steps each; `bad` names row and count. */
function groupsOf(values: number[][], keys: MomentKey[], bad: Record<number, number> = {}): IMomentGroups {
  const flat = values.flat();
  const nonFinite = Float64Array.from(flat, (_, at) => bad[at] ?? 0);
  const step = Float64Array.from(values.flatMap(each => each.map((_, at) => at + 1)));
  return {
    keys,
    group: Uint32Array.from(values.flatMap((each, group) => each.map(() => group))),
    step,
    samples: step.map(each => 10 * each),
    value: Float64Array.from(flat),
    count: Float64Array.from(flat, value => (Number.isNaN(value) ? 0 : 5)),
    nonFinite,
    error: new Float64Array(flat.length),
    scaled: new Uint8Array(flat.length),
    groupsTotal: keys.length,
    stepsTotal: values[0]?.length ?? 0
  };
}

function lineOf(x: number[], value: number[], key: MomentKey = [], run = 0): ILine {
  const empty = new Float64Array(x.length);
  const layer = typeof key[0] === 'number' ? key[0] : null;
  const shared = { nonFinite: empty, error: empty, count: empty.map(() => 1) };
  return {
    ...shared,
    key: JSON.stringify(key),
    starts: [],
    isThin: false,
    run,
    layer,
    name: '',
    label: '',
    step: list(...x),
    x: list(...x),
    value: list(...value)
  };
}

it('writes groups and rows with all their digits, and names with commas in quotes', async () => {
  const groups = groupsOf([[0.1, NaN]], [['a,"b"', 3]], { 1: 2 });
  expect(tableCsv(groupTable(groups, ['name', 'layer']), { value: 'l2' })).toBe(
    'name,layer,step,samples,l2,count,nonfinite,error\n"a,""b""",3,1,10,0.1,5,0,0\n"a,""b""",3,2,20,nan,0,2,0\n'
  );
  const moments = new MemoryMoments();
  moments.add(
    { step: 1, name: 'a.weight', std: 2, count: 10, gradientStage: PRE_STEP },
    { step: 1, name: 'b.weight' }
  );
  const rows = await moments.rows({ stats: ['grad'] });
  const written = rows && rowsCsv(rows, rowFilter(rows, { name: 'a.w', rank: '0' })).split('\n');
  expect(written?.slice(1)).toEqual(['1,-1,grad,a.weight,0,0,10,0,40,0,480,-8,8,0,0,0,0,pre_step,1', '']);
});

it('takes the chosen steps where a source brings more than these', async () => {
  const moments = new MemoryMoments();
  moments.add(...[1, 2, 3, 4].map(step => ({ step, name: 'a.weight' })));
  const rows = await moments.rows({ stats: ['grad'] });
  const steps = (chosen: [number, number] | null): string[] =>
    (rows ? rowsCsv(rows, rowFilter(rows, {}, chosen)) : '')
      .trim()
      .split('\n')
      .slice(1)
      .map(line => line.split(',')[0] ?? '');
  expect(steps([2, 3])).toEqual(['2', '3']);
  expect(steps(null)).toEqual(['1', '2', '3', '4']);
});

it('compares lines at each other’s places, and between points where they do not meet', () => {
  const own = [lineOf([1, 2, 4], [10, 20, 40], ['a']), lineOf([1], [1], ['b'])];
  const other = [lineOf([1, 3, 5], [11, 33, 55], ['a'], 1), lineOf([1], [1], ['c'], 1)];
  // Over steps, and over samples.
  for (const each of [1, 16]) {
    const over = (lines: ILine[]): ILine[] => lines.map(line => ({ ...line, x: line.x.map(x => each * x) }));
    const difference = compareLines(over(own), over(other), 'difference');
    expect(difference.lines).toHaveLength(1);
    expect([...(difference.lines[0]?.value ?? [])]).toEqual([1, 3, NaN]);
    expect([difference.lines[0]?.run, difference.between]).toEqual([1, 1]);
    const ratio = compareLines(over(own), over(other), 'ratio');
    expect([...(ratio.lines[0]?.value ?? [])]).toEqual([1.1, 1.1, NaN]);
    expect([ratio.lines[0]?.run, ratio.between]).toEqual([1, 1]);
  }
});

it('compares nothing with zero, nor with what has no data', () => {
  const own = [lineOf([1, 2], [0, NaN], ['a'])];
  const other = [lineOf([1, 2], [3, 3], ['a'], 1)];
  expect([...(compareLines(own, other, 'ratio').lines[0]?.value ?? [])]).toEqual([NaN, NaN]);
  expect([...(compareLines(own, other, 'difference').lines[0]?.value ?? [])]).toEqual([3, NaN]);
  expect(compareLines(own, [], 'ratio')).toEqual({ lines: [], between: 0 });
  expect(compareLines([], other, 'ratio')).toEqual({ lines: [], between: 0 });
});

describe('the legend of lines', () => {
  const keyOf = (labels: string[]): { texts: unknown; colors: unknown[] } => {
    const lines = labels.map(label => ({ ...lineOf([1], [1]), label }));
    const texts = { xTitle: '', yTitle: '', colorTitle: '', yScale: 'linear' };
    const colors = labels.map((_, at) => `#${at}`);
    const recipe = lineRecipe({ lines, colors, bad: [], x: [1, 2], ys: [[0, 1]], texts }, null);
    return { texts: recipe.params?.['keyText'], colors: [...(recipe.datasets['key'] ?? [])] };
  };

  it('has an entry of its own for every tensor', () => {
    const named = (layer: number): string => `decoder.layers.${layer}.self_attention.linear_qkv.weight`;
    expect(keyOf([0, 1, 2, 3].map(named))).toEqual({
      texts: [0, 1, 2, 3].map(layer => `…${layer}…linear_qkv.weight`),
      colors: [0, 1, 2, 3].map(at => ({ place: at, color: `#${at}` }))
    });
  });

  it('names a line once, and of very many some that are spread over all', () => {
    expect(keyOf(['a', 'b', 'a']).texts).toEqual(['a', 'b']);
    const { texts, colors } = keyOf(Array.from({ length: 100 }, (_, at) => `layer ${at}`));
    expect(texts).toHaveLength(14);
    expect(texts).toEqual(expect.arrayContaining(['layer 0', 'layer 99']));
    expect(colors[13]).toEqual({ place: 13, color: '#99' });
  });
});

it('names stretches of neighbouring steps that are not finite, over all groups', () => {
  const groups = groupsOf(
    [
      [1, 1, 1, 1, 1],
      [1, 1, Infinity, 1, 1]
    ],
    [['a'], ['b']],
    { 1: 3, 4: NaN }
  );
  expect(badStretches(groups, [1, 2, 3, 4, 5], step => 10 * step)).toEqual([
    { x: 20, x2: 30, count: 4 },
    { x: 50, x2: 50, count: 1 }
  ]);
});

it('lets the farthest value stand for a column of several steps', () => {
  const calm = Array.from({ length: 6000 }, () => 1);
  const spiky = calm.map((value, at) => (at === 4321 ? 50 : value));
  const groups = groupsOf([spiky, calm], [[0], [1]], {});
  const cells = cellsOf(groups, groups.step, [...groups.step.subarray(0, 6000)], HATCHED);
  expect(cells.merged).toBe(true);
  expect([...cells.values].filter(value => value === 50)).toHaveLength(1);
});

it('hatches cells in which something is not finite, and leaves blank what has no data', () => {
  const groups = groupsOf([[1, NaN, 3]], [[0]], { 2: 4 });
  const cells = cellsOf(groups, groups.step, [1, 2, 3], HATCHED);
  expect([...cells.values]).toEqual([1, NaN, NaN]);
  expect([...cells.missing]).toEqual([0, 1, 0]);
});

it('gives each line a colour of its own, and what has no layer a plain one', () => {
  const layers = Array.from({ length: 60 }, (_, layer) => lineOf([1], [1], [layer]));
  const colors = lineColors([...layers, lineOf([1], [1], [null])], false);
  expect(new Set(colors).size).toBe(61);
  expect(colors[60]).toBe(COLORS.categorical.light[7]);
});

it('keeps the detail of a stretch between what is known of the rest', () => {
  const whole = [lineOf([1, 10, 20, 30], [1, 2, 3, 4], ['a'])];
  const detail = new Detail();
  expect(detail.refine(whole)).toBe(whole);
  detail.take(whole, [9, 21], [lineOf([9, 10, 11, 21], [5, 2, 6, 7], ['a'])]);
  const [line] = detail.refine(whole);
  expect([...(line?.x ?? [])]).toEqual([1, 9, 10, 11, 21, 30]);
  expect([...(line?.value ?? [])]).toEqual([1, 5, 2, 6, 7, 4]);
  expect(detail.refine(whole)[0]).toBe(line);
  expect(detail.covers(whole, [12, 18])).toBe(true);
  expect(detail.covers(whole, [8, 18])).toBe(false);
  expect(detail.covers([...whole], [12, 18])).toBe(false);
});

it('puts tensors that are not finite before those that moved most', () => {
  const groups = groupsOf(
    [
      [1, 2],
      [1, 9],
      [1, 1]
    ],
    [['a'], ['b'], ['c']],
    { 5: 1 }
  );
  expect(movesOf(groups).map(move => move.name)).toEqual(['c', 'b', 'a']);
});

it('keeps a map of ten thousand layers small enough to paint', () => {
  const layers = Array.from({ length: 10_000 }, (_, layer) => layer);
  const one = groupsOf(
    layers.map(layer => [layer]),
    layers.map(layer => [layer])
  );
  // Each layer has a row at one of 600 steps.
  const groups = { ...one, step: Float64Array.from(layers, layer => 1 + (layer % 600)) };
  const steps = Array.from({ length: 600 }, (_, at) => at + 1);
  const cells = cellsOf(groups, groups.step, steps, HATCHED);
  expect(cells.rows * cells.columns).toBeLessThanOrEqual(4_000_000);
  expect(cells.columns).toBeGreaterThan(300);
  expect(cells.missing.reduce((held, each) => held + (each === 0 ? 1 : 0), 0)).toBe(10_000);
});

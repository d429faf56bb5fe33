import { fromHalf } from '../half';
import { rowsOf, type ILiveView } from '../payload';
import { cellTips, momentCellTips, momentTips, scalarTips, trendCellTips, trendTips } from '../tips';

const frame = { left: 0, top: 0, width: 10, height: 10 };
const live = (more: Partial<ILiveView>): ILiveView => ({
  id: 'view-0',
  template: 'heatmap',
  spec: {},
  datasets: {},
  extent: { x: [0, 1], y: [0, 1] },
  axes: { x: 'position', y: 'tile' },
  ...more
});

describe('half floats', () => {
  it.each([
    [0x0000, 0],
    [0x3c00, 1],
    [0xc000, -2],
    [0x7bff, 65504],
    [0x0400, 2 ** -14],
    [0x0001, 2 ** -24],
    [0x7c00, Infinity],
    [0xfc00, -Infinity],
    [0x3555, 0.333251953125]
  ])('%i is read as %d', (bits, value) => {
    expect(fromHalf(bits)).toBe(value);
  });

  it('keep what is not a number', () => {
    expect(fromHalf(0x7e00)).toBeNaN();
  });
});

describe('the columns of a page', () => {
  it('become the rows of a dataset', () => {
    expect(rowsOf({ step: [1, 2], value: [0.5, null] })).toEqual([
      { step: 1, value: 0.5 },
      { step: 2, value: null }
    ]);
    expect(rowsOf({})).toEqual([]);
  });

  it('are short where few values are distinct', () => {
    expect(rowsOf({ name: { distinct: ['a', 'b'], places: [0, 0, 1] }, x: [1, 2, 3] })).toEqual([
      { name: 'a', x: 1 },
      { name: 'a', x: 2 },
      { name: 'b', x: 3 }
    ]);
  });
});

describe('tooltips of a report', () => {
  it('say the value of the cell under the pointer, its place and its token', () => {
    const matrix = { rows: 2, columns: 3, values: Float32Array.from([1, 2, 3, 4, 5, NaN]) };
    const tips = cellTips(live({ tokens: ['a', 'b', '␣'] }), () => new Map([[4, matrix]]));
    expect(tips({ frame: { ...frame, facet: { layer: 4 } }, x: 0.6, y: 1.2 })).toEqual({
      heading: 'layer 4',
      lines: [
        { name: 'value', value: '5' },
        { name: 'position', value: '1 “b”' },
        { name: 'tile', value: '1' }
      ]
    });
    expect(tips({ frame: { ...frame, facet: { layer: 4 } }, x: 2, y: 1 })?.lines[0]?.value).toBe('NaN');
    expect(tips({ frame: { ...frame, facet: { layer: 4 } }, x: 3, y: 0 })).toBeNull();
    expect(tips({ frame: { ...frame, facet: { layer: 5 } }, x: 0, y: 0 })).toBeNull();
  });

  it('list every layer at the nearest step of a trend', () => {
    const rows = { step: [10, 20, 10, 20], layer: [1, 1, 2, 2], value: [0.5, 0.6, 1.5, null] };
    const tips = trendTips(live({ datasets: { rows } }));
    expect(tips({ frame: { ...frame, facet: {} }, x: 17, y: 0 })).toEqual({
      heading: 'step 20',
      lines: [
        { name: 'layer 1', value: '0.6' },
        { name: 'layer 2', value: 'NaN' }
      ]
    });
  });

  it('say the value of a layer × step cell', () => {
    const tips = trendCellTips(live({ cells: { step: [10, 20], layer: [3, 3], value: [7, 8] } }));
    expect(tips({ frame: { ...frame, facet: {} }, x: 19, y: 3.2 })).toEqual({
      heading: 'layer 3, step 20',
      lines: [{ name: 'value', value: '8' }]
    });
    expect(tips({ frame: { ...frame, facet: {} }, x: 19, y: 1 })).toBeNull();
  });

  it('list the scalars of the panel under the pointer only', () => {
    const rows = {
      x: [1, 2, 1],
      name: ['loss', 'loss', 'speed'],
      value: [5, 4, 8700],
      panel: [0, 0, 1],
      kind: ['line', 'line', 'line']
    };
    const tips = scalarTips(live({ datasets: { rows }, axes: { x: 'step', y: '' } }));
    expect(tips({ frame: { ...frame, facet: { panel: 0 } }, x: 1.9, y: 0 })?.lines).toEqual([
      { name: 'loss', value: '4' }
    ]);
    expect(tips({ frame: { ...frame, facet: { panel: 1 } }, x: 1.9, y: 0 })?.lines).toEqual([
      { name: 'speed', value: '8\u2009700' }
    ]);
  });

  it('say every group of tensors at the step, the nearest to the pointer first', () => {
    const rows = {
      x: [10, 20, 10, 20, 10],
      name: ['layer 0', 'layer 0', 'layer 1', 'layer 1', 'layer 0'],
      value: [1, 2, 5, null, 7],
      opacity: [1, 1, 1, 1, 0.25]
    };
    const tips = momentTips(live({ datasets: { rows }, axes: { x: 'step', y: 'gradient L2' } }));
    expect(tips({ frame: { ...frame, facet: {} }, x: 11, y: 4 })).toEqual({
      heading: 'step 10',
      lines: [
        { name: 'layer 1', value: '5' },
        { name: 'layer 0', value: '1' }
      ]
    });
    expect(tips({ frame: { ...frame, facet: {} }, x: 19, y: 4 })?.lines).toEqual([
      { name: 'layer 0', value: '2' },
      { name: 'layer 1', value: 'NaN' }
    ]);
  });

  it('name the group of a cell', () => {
    const cells = {
      step: [10, 20, 10],
      layer: [0, 0, 1],
      name: ['mlp.weight', 'mlp.weight', 'attn.weight'],
      value: [1, 2, null]
    };
    const tips = momentCellTips(live({ template: 'moment-map', cells }));
    expect(tips({ frame: { ...frame, facet: {} }, x: 18, y: 0.3 })).toEqual({
      heading: 'mlp.weight, step 20',
      lines: [{ name: 'value', value: '2' }]
    });
    expect(tips({ frame: { ...frame, facet: {} }, x: 18, y: 3 })).toBeNull();
  });
});

import { Chart } from '../chart';
import { legend, ColorScale } from '../color-scale';
import { paint } from '../pixels';
import { toDataUrl, toPicture } from '../pictures';
import { ChartError, fill, type IRecipe, type Row, TEMPLATES, type TemplateName } from '../recipe';
import { DARK_THEME, LIGHT_THEME, loadVega } from '../vega';
import { Zoom } from '../zoom';

const LINES: IRecipe = {
  template: 'lines',
  texts: {
    xTitle: 'step',
    xLabel: 'datum.label',
    xTicks: 'null',
    yTitle: 'rms',
    colorTitle: 'layer',
    yScale: 'linear'
  },
  params: { x0: 0, x1: 10, y0: 0, y1: 1 },
  datasets: {
    rows: [1, 2].flatMap(line => [0, 5, 10].map(x => ({ x, line, value: x / 20 + line / 10 }))),
    nonfinite: []
  }
};

const TEXTS = {
  xTitle: 'x',
  yTitle: 'y',
  colorTitle: 'c',
  legendTitle: 'v',
  yScale: 'linear',
  xLabel: 'datum.label',
  xTicks: 'null'
};

let chart: Chart | null = null;
const mount = async (recipe: IRecipe): Promise<Chart> => {
  const node = document.createElement('div');
  document.body.append(node);
  chart = await Chart.mount(node, recipe, { theme: LIGHT_THEME, renderer: 'svg' });
  return chart;
};
const paths = (): string[] =>
  [...(chart?.node.querySelectorAll('.mark-line path') ?? [])].map(path => path.getAttribute('d') ?? '');

afterEach(() => {
  chart?.dispose();
  chart = null;
  document.body.replaceChildren();
});

it('draws one line for each layer', async () => {
  await mount(LINES);
  expect(paths()).toHaveLength(2);
});

it.each([
  [400, '100 ms'],
  [600_000, '200 s']
])('writes the time of lanes of %i ms in the unit that fits', async (x1, label) => {
  await mount({ template: 'timeline', texts: TEXTS, params: { x0: 0, x1 }, datasets: { pieces: [] } });
  const labels = [...(chart?.node.querySelectorAll('.role-axis-label text') ?? [])];
  expect(labels.map(each => each.textContent?.replace('\u00a0', ' '))).toContain(label);
});

it('patches new rows into the drawn chart without embedding again', async () => {
  const drawn = await mount(LINES);
  const before = paths();
  const rows = [0, 5, 10].map(x => ({ x, line: 1, value: 0.9 }));
  drawn.change('rows', rows);
  await drawn.settled();
  expect(paths()).toHaveLength(1);
  expect(before).not.toContain(paths()[0]);
  await drawn.apply({
    ...LINES,
    datasets: { ...LINES.datasets, rows: [...rows, { x: 10, line: 2, value: 0.1 }] }
  });
  expect(paths()).toHaveLength(2);
  expect(drawn.embeds).toBe(1);
});

it('goes on drawing lines of any name, and shows each as it is', async () => {
  const names = ['__proto__', 'constructor', 'loss'];
  const rowsOf = (value: number): Row[] =>
    names.flatMap(name =>
      [0, 1].map(x => ({ x, name, label: name, line: name, value: value + x, panel: names.indexOf(name) }))
    );
  const recipe: IRecipe = {
    template: 'line-panels',
    texts: TEXTS,
    params: {
      x0: 0,
      x1: 1,
      ys: Object.fromEntries(names.map(name => [name, [0, 5]])),
      keyColors: ['red', 'green', 'blue']
    },
    datasets: { rows: rowsOf(0) }
  };
  const drawn = await mount(recipe);
  for (const value of [1, 2, 3]) {
    await drawn.apply({ ...recipe, datasets: { ...recipe.datasets, rows: rowsOf(value) } });
  }
  expect(drawn.frames().map(({ facet }) => facet['panel'])).toEqual([0, 1, 2]);
  expect(drawn.recipe.datasets['rows']?.[0]).toMatchObject({
    name: '__proto__',
    label: '__proto__',
    value: 3
  });
  const words = [...drawn.node.querySelectorAll('text')].map(each => each.textContent?.replace('\u2060', ''));
  expect(words).toEqual(expect.arrayContaining(names));
  await drawn.apply({ ...recipe, datasets: { rows: rowsOf(4).filter(({ name }) => name !== 'loss') } });
  expect(drawn.frames()).toHaveLength(2);
});

it('asks nothing of Vega when a recipe says the same again', async () => {
  const drawn = await mount(LINES);
  const { vega } = await loadVega();
  const [change, signal] = [
    jest.spyOn(vega.View.prototype, 'change'),
    jest.spyOn(vega.View.prototype, 'signal')
  ];
  await drawn.apply(structuredClone(LINES));
  expect(change).not.toHaveBeenCalled();
  expect(signal).not.toHaveBeenCalled();
  await drawn.apply({ ...LINES, params: { ...LINES.params, x1: 20 } });
  expect(signal.mock.calls.filter(([name]) => name === 'x1')).toEqual([['x1', 20]]);
  change.mockRestore();
  signal.mockRestore();
});

it('lays out again what stands beside the plots when its words may be wider, not when a figure is another one', async () => {
  const scale = (most: number): ReturnType<typeof legend> =>
    legend(new ColorScale([-most, most], 'linear'), false, { lowest: '', highest: '', notFinite: '' });
  const recipe = (most: number): IRecipe => ({
    template: 'heatmap',
    texts: { xTitle: 'position', yTitle: 'tile', legendTitle: 'value' },
    params: { x0: -0.5, x1: 5.5, y0: -0.5, y1: 3.5, tokens: [], headers: { 0: '' }, ...scale(most).params },
    datasets: { pictures: [], legend: scale(most).rows }
  });
  const drawn = await mount(recipe(0.48));
  await drawn.resize(600);
  const { vega } = await loadVega();
  const resize = jest.spyOn(vega.View.prototype, 'resize');
  const next = async (most: number): Promise<number> => {
    resize.mockClear();
    await drawn.apply(recipe(most));
    await drawn.resize(600);
    return resize.mock.calls.length;
  };
  expect(await next(0.36)).toBe(0);
  expect(drawn.node.textContent).toContain('0.36');
  expect(await next(0.485)).toBeGreaterThan(0);
  expect(await next(0.4)).toBe(0);
  expect(drawn.node.textContent).toContain('\u22120.4');
  resize.mockRestore();
});

it('lets go of the rows that it drew before', async () => {
  const drawn = await mount(LINES);
  for (let turn = 1; turn <= 300; turn++) {
    drawn.change('nonfinite', [{ step: turn / 30, layer: 1, count: 1, color: '#d00', turn }]);
    await drawn.settled();
  }
  const turns = new Set<unknown>();
  const seen = new Set<unknown>();
  const open: unknown[] = [drawn];
  while (open.length > 0) {
    const value = open.pop();
    if (value === null || typeof value !== 'object' || value instanceof Node || seen.has(value)) {
      continue;
    }
    seen.add(value);
    const inner =
      value instanceof Map || value instanceof Set ? [...value.entries()].flat() : Object.values(value);
    open.push(...inner.filter(each => typeof each === 'object'));
    if ('turn' in value) {
      turns.add(value.turn);
    }
  }
  expect(turns).toContain(300);
  expect(turns.size).toBeLessThan(100);
});

it('keeps rows and domain when the theme changes', async () => {
  const drawn = await mount(LINES);
  drawn.set({ x0: 2, x1: 8 });
  drawn.change(
    'rows',
    [0, 10].map(step => ({ step, layer: 1, value: 0.2 }))
  );
  await drawn.restyle(DARK_THEME);
  expect(drawn.embeds).toBe(2);
  expect(paths()).toHaveLength(1);
  expect(drawn.recipe.params).toMatchObject({ x0: 2, x1: 8 });
  expect(drawn.node.innerHTML).toContain(DARK_THEME.muted);
});

it('finalises the Vega view once when it is disposed twice', async () => {
  const drawn = await mount(LINES);
  const { vega } = await loadVega();
  const finalize = jest.spyOn(vega.View.prototype, 'finalize');
  drawn.dispose();
  drawn.dispose();
  expect(finalize).toHaveBeenCalledTimes(1);
  finalize.mockRestore();
  expect(drawn.isDisposed).toBe(true);
  expect(drawn.node.childElementCount).toBe(0);
  expect(drawn.frames()).toEqual([]);
  drawn.change('rows', []);
  await drawn.settled();
});

it('finds the place under a pointer in the units of the axes', async () => {
  const drawn = await mount(LINES);
  const [frame] = drawn.frames();
  const origin = drawn.origin();
  const place = drawn.locate({
    clientX: origin.left + (frame?.left ?? 0) + (frame?.width ?? 0) / 4,
    clientY: origin.top + (frame?.top ?? 0) + 1
  });
  expect(place?.x).toBeCloseTo(2.5, 6);
  expect(drawn.locate({ clientX: -50, clientY: -50 })).toBeNull();
});

it('exports an SVG with title and caption, and sharp pixels in it', async () => {
  const pixels = paint({ rows: 2, columns: 2, values: [0, 1, 2, 3] }, new ColorScale([0, 3]));
  const drawn = await mount({
    template: 'heatmap',
    texts: TEXTS,
    params: { x0: -0.5, x1: 1.5, y0: -0.5, y1: 1.5 },
    datasets: {
      pictures: [{ layer: 1, ...toPicture(pixels), x: -0.5, x2: 1.5, y: -0.5, y2: 1.5 }],
      legend: []
    }
  });
  const svg = await drawn.toSVG({ title: 'MLP1 output', caption: ['Sample 1 of 16.'] });
  expect(svg).toContain('MLP1 output');
  expect(svg).toContain('Sample 1 of 16.');
  expect(svg).toContain('image-rendering: pixelated');
  // A file of its own is read as XML, which forgives nothing.
  expect(new DOMParser().parseFromString(svg, 'image/svg+xml').querySelector('parsererror')).toBeNull();
  expect(svg).toContain(toDataUrl(pixels));
});

it('follows the data until someone zooms, and stays there afterwards', async () => {
  const zoom = new Zoom(await mount(LINES), { axes: 'x', least: 1 });
  expect(zoom.extent([0, 10], [0, 1])).toMatchObject({ x0: 0, x1: 10 });
  expect(zoom.extent([0, 20], [0, 1])).toMatchObject({ x0: 0, x1: 20 });
  zoom.by(0.5);
  expect(zoom.domain).toMatchObject({ x0: 5, x1: 15, y0: 0, y1: 1 });
  expect(zoom.extent([0, 40], [0, 2])).toMatchObject({ x0: 5, x1: 15 });
  zoom.pan(10, 0);
  expect(zoom.domain).toMatchObject({ x0: 30, x1: 40 });
  zoom.reset();
  expect(zoom.domain).toMatchObject({ x0: 0, x1: 40 });
  zoom.dispose();
  zoom.dispose();
});

it('shows a part until someone zooms, which a drag moves, and all to who zooms out', async () => {
  const zoom = new Zoom(await mount(LINES), { axes: 'x', least: 1 });
  expect(zoom.extent([0, 40], [0, 1], [30, 40])).toMatchObject({ x0: 30, x1: 40 });
  expect(zoom.extent([0, 50], [0, 1], [40, 50])).toMatchObject({ x0: 40, x1: 50 });
  expect([zoom.isZoomed, zoom.isHome]).toEqual([true, true]);
  zoom.reveal(45, 0);
  expect(zoom.extent([0, 52], [0, 1], [42, 52])).toMatchObject({ x0: 42, x1: 52 });
  zoom.extent([0, 50], [0, 1], [40, 50]);
  zoom.pan(-1, 0);
  expect(zoom.domain).toMatchObject({ x0: 30, x1: 40 });
  expect(zoom.extent([0, 60], [0, 1], [50, 60])).toMatchObject({ x0: 30, x1: 40 });
  zoom.by(100);
  expect([zoom.isZoomed, zoom.isHome]).toEqual([false, false]);
  expect(zoom.extent([0, 70], [0, 1], [60, 70])).toMatchObject({ x0: 0, x1: 70 });
  zoom.reset();
  expect(zoom.domain).toMatchObject({ x0: 60, x1: 70 });
});

it.each(Object.keys(TEMPLATES) as TemplateName[])('fills every placeholder of %s', template => {
  const text = JSON.stringify(
    fill({ template, texts: TEXTS, params: { x0: 3 }, datasets: { rows: [{ step: 1 }] } })
  );
  expect(text).not.toMatch(/"\$/);
  expect(text).toContain('{"name":"x0","value":3}');
});

it('names the text that a recipe lacks', () => {
  expect(() => fill({ ...LINES, texts: {} })).toThrow(ChartError);
  expect(() => fill({ ...LINES, texts: {} })).toThrow(/xTitle/);
});

it('puts numbers on the colour strip and explains the non-finite colour only where it is used', () => {
  const words = { lowest: 'lowest', highest: 'highest', notFinite: 'not finite' };
  const scale = new ColorScale([0, 1]);
  expect(legend(scale, false, words).params).toEqual({
    legendLow: 0,
    legendAt: [0, 0.25, 0.5, 0.75, 1],
    legendText: ['0', '0.25', '0.5', '0.75', '1']
  });
  expect(legend(scale, true, words).params.legendText[0]).toBe('not finite');
  expect(legend(scale, false, words, true).params.legendText).toEqual(['lowest', 'highest']);
});

import type { ViewOptions } from '../../src/protocol/views.generated';
import { Chart } from '../../src/charts';
import { LinePainter } from '../../src/views/mount/line-painter';
import { mountView, toCode, type IView } from '../../src/views';
import { SLICES } from '../../src/instruments/slices.generated';
import { registerSlices } from '../../src/slice';
import { SMALL_RUN } from './small-run';
import { SyntheticRun, type ISyntheticShape } from './source';
import { registerKits, tableOf, type KitRows } from './kit-views';
import { THEMES } from './themes';
import { writtenRun } from './written';

registerSlices(SLICES);
registerKits();

const node = document.getElementById('view') as HTMLElement;

/** What the tests drive the page with. */
const harness = {
  run: null as SyntheticRun | null,
  view: null as IView | null,
  /** Options of views that were to be shown beside this one. */
  opened: [] as ViewOptions[],

  theme(name: 'light' | 'dark'): void {
    for (const [variable, value] of Object.entries(THEMES[name])) {
      document.documentElement.style.setProperty(variable, value);
    }
    document.body.style.background = THEMES[name]['--jp-layout-color0'] ?? '';
    document.body.dataset['jpThemeLight'] = String(name === 'light');
    document.body.dataset['jpThemeName'] = name;
  },

  /** Leave nothing of what was shown: the page is as it was loaded. */
  clear(): void {
    for (const view of [harness.view, ...together]) {
      view?.dispose();
    }
    harness.view = harness.run = lastPainted = null;
    together.length = charts.length = harness.opened.length = 0;
    node.replaceChildren();
    harness.theme('light');
  },

  async show(options: ViewOptions, shape: ISyntheticShape, other?: ISyntheticShape): Promise<void> {
    harness.view?.dispose();
    harness.run = new SyntheticRun(shape);
    const compared = other && new SyntheticRun(other);
    const runs = compared && {
      list: () => Promise.resolve([{ id: 'gpt-wide', name: 'gpt-wide' }]),
      acquire: () =>
        Promise.resolve({ source: Object.assign(compared, { name: 'gpt-wide' }), dispose: () => undefined })
    };
    const openView = (other: ViewOptions): void => void harness.opened.push(other);
    harness.view = await mountView(node, harness.run, options, { openView, ...(runs && { runs }) });
    await harness.view.settled();
  },

  /** Show a view of a run whose model wrote a text of so many tokens. */
  async showWritten(options: ViewOptions, tokens?: number): Promise<void> {
    harness.view?.dispose();
    harness.view = await mountView(node, writtenRun(tokens), options, { openView: () => undefined });
    await harness.view.settled();
  },

  /** Show the example of a kit on rows of its stream. */
  async showKit(kit: string, rows: KitRows, more: object = {}): Promise<void> {
    harness.view?.dispose();
    harness.run = Object.assign(new SyntheticRun(SMALL_RUN), { table: tableOf(rows) });
    const options = { view: `kit_${kit}`, ...more } as unknown as ViewOptions;
    harness.view = await mountView(node, harness.run, options);
    await harness.view.settled();
  },

  /** Show views of one run in tabs of some pixels, side by side. */
  async showTabs(views: ViewOptions[], shape: ISyntheticShape, width: number, height: number): Promise<void> {
    harness.run = new SyntheticRun(shape);
    for (const [at, options] of views.entries()) {
      const tab = document.createElement('div');
      tab.className = 'tab';
      tab.style.cssText = `position: absolute; top: 0; left: ${at * width}px; width: ${width}px; height: ${height}px; overflow: auto;`;
      node.append(tab);
      const view = await mountView(tab, harness.run, options, { frame: tab });
      await view.settled();
      together.push(view);
    }
  },

  /** Show several views of one run below one another. */
  async showTogether(views: ViewOptions[], shape: ISyntheticShape): Promise<void> {
    harness.run = new SyntheticRun(shape);
    for (const options of views) {
      const place = document.createElement('div');
      node.append(place);
      const view = await mountView(place, harness.run, options);
      await view.settled();
      together.push(view);
    }
  },

  /** Resolves when all views that are shown together are drawn. */
  async allSettled(): Promise<void> {
    await Promise.all(together.map(view => view.settled()));
  },

  /** A plot's rectangle in the page's pixels; that of the view shown last unless told. */
  plot(of = drawn(), facet = 0): { left: number; top: number; width: number; height: number } {
    const [chart, frame] = [of, of.frames()[facet]];
    const origin = chart.origin();
    return {
      left: origin.left + (frame?.left ?? 0),
      top: origin.top + (frame?.top ?? 0),
      width: frame?.width ?? 0,
      height: frame?.height ?? 0
    };
  },

  /** A plot of the views that are shown together, by place. */
  plotOf(view: number, facet = 0): { left: number; top: number; width: number; height: number } {
    const chart = charts[view];
    if (!chart) {
      throw new Error(`Expected a chart at ${view} and found none.`);
    }
    return harness.plot(chart, facet);
  },

  /** Where the domain lies of a view that is shown together with others, by place. */
  domainOf(view: number): Record<'x0' | 'x1' | 'y0' | 'y1', number> {
    const { x0 = 0, x1 = 0, y0 = 0, y1 = 0 } = (charts[view]?.recipe.params ?? {}) as Record<string, number>;
    return { x0, x1, y0, y1 };
  },

  /** Where the plot's domain lies. */
  domain(): Record<string, unknown> {
    const { x0, x1, y0, y1 } = drawn().recipe.params;
    return { x0, x1, y0, y1 };
  },

  /** One number of the newest row, straight from the source. */
  async valueOf(flag: string, layer: number, position: number, tile: number): Promise<number> {
    const result = await harness.run?.tensors({ flag, layers: [layer] });
    const row = result?.rows[result.rows.length - 1];
    return row?.values[position * (row.shape[2] ?? 0) + tile] ?? NaN;
  },

  /** Whether the chart has an opaque pixel at a point of the page. */
  isPainted(x: number, y: number): boolean {
    const canvas = document.querySelector<HTMLCanvasElement>('canvas.marks');
    const { left, top } = drawn().origin();
    return (canvas?.getContext('2d')?.getImageData(x - left, y - top, 1, 1).data[3] ?? 0) > 200;
  },

  /** Colour of the chart at a point of the page. */
  colorAt(x: number, y: number): number[] {
    const canvas = document.querySelector<HTMLCanvasElement>('canvas.marks');
    const { left, top } = drawn().origin();
    return [...(canvas?.getContext('2d')?.getImageData(x - left, y - top, 1, 1).data ?? [])];
  },

  /** By how much the plot's colour that is nearest to the top of the strip of colours differs from it. */
  farFromTop(): number {
    const canvas = document.querySelector<HTMLCanvasElement>('canvas.marks');
    const [box, { left, top }] = [harness.plot(), drawn().origin()];
    const [x = 0, y = 0, width = 0, height = 0] = [box.left - left, box.top - top, box.width, box.height].map(
      each => Math.round(each * devicePixelRatio)
    );
    const data = canvas?.getContext('2d')?.getImageData(x, y, width, height).data ?? [];
    const strip = drawn().recipe.datasets['legend']?.at(-1)?.['color'];
    const wanted = [1, 3, 5].map(at => parseInt(String(strip).slice(at, at + 2), 16));
    let least = Infinity;
    for (let at = 0; at < data.length; at += 4) {
      const apart = wanted.map((each, channel) => Math.abs(each - (data[at + channel] ?? 0)));
      least = Math.min(least, Math.max(...apart));
    }
    return least;
  },

  /** The chart that was mounted last. */
  chart: (): Chart => drawn(),

  /** Steps of the first line of the explorer that lie in the part of the plot that is shown. */
  shownSteps(): number {
    const { x0 = 0, x1 = 0 } = drawn().recipe.params as Record<string, number>;
    const [line] = lastPainted?.lines ?? [];
    return Array.from(line?.x ?? []).filter(x => x >= x0 && x <= x1).length;
  },

  /** By how many pixels the explorer's lines were painted for another plot than they lie in. */
  stretched(): number {
    const { width = 0, height = 0 } = drawn().frames()[0] ?? {};
    return Math.abs(width - (lastPainted?.width ?? 0)) + Math.abs(height - (lastPainted?.height ?? 0));
  },

  toSVG(): Promise<string> {
    return drawn().toSVG({ title: '', caption: [] });
  },

  /** Export the picture, and paint over its canvases before that is done. */
  exportWhilePainting(): Promise<string> {
    const exported = drawn().toSVG({ title: '', caption: [] });
    for (const { image } of drawn().recipe.datasets['pictures'] ?? []) {
      if (image instanceof HTMLCanvasElement) {
        image.getContext('2d')?.clearRect(0, 0, image.width, image.height);
      }
    }
    return exported;
  },

  /** Let steps arrive, each drawn before the next; returns how many canvases were made meanwhile. */
  async follow(steps: number): Promise<number> {
    let made = 0;
    const create = document.createElement.bind(document);
    document.createElement = (name: string, options?: ElementCreationOptions): HTMLElement => {
      made += name === 'canvas' ? 1 : 0;
      return create(name, options);
    };
    for (let step = 0; step < steps; step++) {
      harness.run?.advance();
      await harness.view?.settled();
    }
    Reflect.deleteProperty(document, 'createElement');
    return made;
  },

  code(): string {
    return harness.view ? toCode(harness.view.options as ViewOptions) : '';
  },

  /** Mean brightness of what is drawn left of the plot: the axis labels. */
  axisInk(): number {
    const canvas = document.querySelector<HTMLCanvasElement>('canvas.marks');
    const data = canvas?.getContext('2d')?.getImageData(0, 0, 30, canvas.height).data ?? [];
    let [sum, count] = [0, 0];
    for (let at = 0; at < data.length; at += 4) {
      if ((data[at + 3] ?? 0) > 60) {
        sum += data[at] ?? 0;
        count += 1;
      }
    }
    return sum / count;
  },

  /** Let steps arrive evenly over a time; returns how often the chart was patched meanwhile, and how long it took. */
  async burst(steps: number, milliseconds: number): Promise<{ draws: number; took: number }> {
    const start = performance.now();
    let draws = 0;
    const apply = Chart.prototype.apply;
    Chart.prototype.apply = function (recipe): Promise<void> {
      draws += 1;
      return apply.call(this, recipe);
    };
    for (let step = 0; step < steps; step++) {
      harness.run?.advance();
      await new Promise(done => setTimeout(done, milliseconds / steps));
    }
    Chart.prototype.apply = apply;
    return { draws, took: performance.now() - start };
  },

  /** Let steps arrive, each after the pause that the pace makes, and see each drawn. */
  async updates(count: number): Promise<void> {
    for (let at = 0; at < count; at++) {
      await new Promise(done => setTimeout(done, 120));
      harness.run?.advance();
      await harness.view?.settled();
    }
  },

  /** Pan the plot to and fro, once a frame. */
  async pan(count: number): Promise<void> {
    const { x0, x1 } = harness.domain() as { x0: number; x1: number };
    for (let at = 0; at < count; at++) {
      const shift = (at % 2 ? 1 : -1) * 5;
      drawn().set({ x0: x0 + shift, x1: x1 + shift });
      await drawn().settled();
      await new Promise(done => requestAnimationFrame(done));
    }
  }
};

/** What the explorer painted last. */
let lastPainted: Parameters<LinePainter['paint']>[0] | null = null;
const paint = LinePainter.prototype.paint;
LinePainter.prototype.paint = function (painting): ReturnType<LinePainter['paint']> {
  lastPainted = painting;
  return paint.call(this, painting);
};
const together: IView[] = [];
const charts: Chart[] = [];
const mountChart = Chart.mount.bind(Chart);
Chart.mount = async (...args): Promise<Chart> => {
  const chart = await mountChart(...args);
  charts.push(chart);
  return chart;
};

/** The chart that is on the page. */
function drawn(): Chart {
  const chart = charts.filter(each => !each.isDisposed).pop();
  if (!chart) {
    throw new Error('Expected a drawn chart and found none. Call show first.');
  }
  return chart;
}

declare global {
  interface Window {
    harness: typeof harness;
  }
}

harness.theme('light');
window.harness = harness;

import type { IDisposable } from '@lumino/disposable';
import type { View } from 'vega';
import type { Result } from 'vega-embed';
import { own } from '../protocol/records';
import { fitCanvas, withCopy, svgOf, withView, type ICaption } from './pictures';
import { frames, images, locate, type IPlotFrame, type IPlace } from './pixels';
import { ChartError, fill, type IRecipe, type Row, toVega } from './recipe';
import { LIGHT_THEME, themeConfig, type ITheme, drawCanvases, loadVega, writeImages } from './vega';

/** A number in a text. Figures are as wide as one another. */
const NUMBERS = /[-\u2212]?\d[\d.\u202f]*(?:e[-\u2212]?\d+)?/g;

interface ITaken {
  readonly words: string;
  readonly figures: number;
}

/**
 * The space that texts take. While only numbers in them change it grows and does not shrink: to lay something
 * out again takes longer than to draw it, and nothing should jump.
 */
export class TextSpace {
  /** Whether these texts fit into what was reserved. */
  holds(name: string, texts: unknown): boolean {
    const [reserved, asked] = [this._taken.get(name), takenBy(texts)];
    return reserved?.words === asked.words && reserved.figures >= asked.figures;
  }

  /** Reserve what these texts take. */
  take(name: string, texts: unknown): void {
    this._taken.set(name, takenBy(texts));
  }

  private readonly _taken = new Map<string, ITaken>();
}

/**
 * What one text or several, in a list or by number, take: words as they are, and of numbers how long the
 * longest is.
 */
function takenBy(of: unknown): ITaken {
  const texts = (typeof of === 'object' && of !== null ? Object.values(of) : [of ?? '']).map(String);
  const numbers = texts.flatMap(text => text.match(NUMBERS) ?? []);
  return {
    words: texts.map(text => text.replace(NUMBERS, '0')).join('\n'),
    figures: Math.max(0, ...numbers.map(number => number.length))
  };
}

/** What Vega's views have and its types lack. */
interface IDirtyable {
  dirty(item: object): void;
  cleanThreshold: number;
}

export interface IChartOptions {
  theme: ITheme;
  /** `svg` where the host has no canvas; otherwise `canvas`. */
  renderer?: 'canvas' | 'svg';
}

/** Params that change what stands beside the plots, and so how wide these may be. */
/**
 * Parts below or beside a plot, by template: their pixels, and how much of the whole picture they take at
 * most.
 */
const PARTS: Readonly<Record<string, readonly [signal: string, usual: number, share: number]>> = {
  tokens: ['strip_width', 240, 0.75],
  points: ['key_width', 168, 0.28]
};
const MARGINS = ['legendText', 'lastLayer', 'keyText', 'rowText', 'rowTokens'];

/** Rows up to which it is cheaper to compare them than to have Vega take them in again. */
const MOST_COMPARED = 512;

/**
 * Marks that are gone and not yet swept out. Vega waits for 10,000 in every mark, and each keeps its row:
 * with a picture a row that is hundreds of megabytes.
 */
const MOST_GONE = 64;

/**
 * A mounted chart. New rows and params patch the running Vega view; only a new theme or another shape of the
 * picture embeds again, and then data, params and size are kept.
 */
export class Chart implements IDisposable {
  /**
   * Draw a recipe into an empty node.
   *
   * @throws {ChartError} When the spec could not be drawn.
   */
  static async mount(node: HTMLElement, recipe: IRecipe, options: IChartOptions): Promise<Chart> {
    const chart = new Chart(node, recipe, options);
    await chart._embed();
    return chart;
  }

  private constructor(
    readonly node: HTMLElement,
    recipe: IRecipe,
    options: IChartOptions
  ) {
    this._recipe = recipe;
    this._theme = options.theme;
    this._renderer = options.renderer ?? 'canvas';
  }

  get recipe(): IRecipe {
    return this._recipe;
  }

  /** Replace the rows of a dataset in place. */
  change(dataset: string, rows: readonly Row[]): void {
    this._recipe = { ...this._recipe, datasets: { ...this._recipe.datasets, [dataset]: rows } };
    const view = this._result?.view;
    if (view && this._vega) {
      view.change(
        dataset,
        this._vega
          .changeset()
          .remove(this._vega.truthy)
          .insert([...toVega(rows)])
      );
    }
    void this.settled();
  }

  set(params: Readonly<Record<string, unknown>>): void {
    const before = this._recipe.params;
    this._recipe = { ...this._recipe, params: { ...before, ...params } };
    for (const [name, value] of Object.entries(params)) {
      // Vega takes an equal object for a new one, and would lay out again all that depends on it.
      if (!sameValue(own(before, name), value)) {
        this._signal(name, value);
      }
    }
    void this.settled();
  }

  /**
   * Draw as another recipe: rows and params that differ are patched, pictures that were painted over are
   * drawn again; another template, other axis titles or another number of columns embed again.
   */
  async apply(recipe: IRecipe): Promise<void> {
    const before = this._recipe;
    const sameShape =
      before.template === recipe.template &&
      before.columns === recipe.columns &&
      before.height === recipe.height &&
      Object.entries(recipe.texts).every(([name, text]) => own(before.texts, name) === text);
    if (!sameShape) {
      this._recipe = { ...recipe, width: recipe.width ?? before.width };
      await this._embed();
      return;
    }
    this._unfitted ||= MARGINS.some(name => !this._space.holds(name, own(recipe.params, name)));
    this.set(recipe.params);
    for (const [name, rows] of Object.entries(recipe.datasets)) {
      if (!sameRows(own(before.datasets, name), rows)) {
        this.change(name, rows);
      }
    }
    if (recipe.painted !== before.painted) {
      this._recipe = { ...this._recipe, painted: recipe.painted };
      this._repaint();
    }
    await this.settled();
  }

  /** Fit the chart into a width in pixels. Does nothing when it fits already. */
  async resize(width: number): Promise<void> {
    if (!(width > 0) || (width === this._fit && !this._unfitted)) {
      return;
    }
    this._fit = width;
    this._unfitted = false;
    MARGINS.forEach(name => this._space.take(name, own(this._recipe.params, name)));
    const part = own(PARTS, this._recipe.template);
    if (part) {
      // A key that the page writes takes no room here.
      const usual = part[0] === 'key_width' && this._recipe.unkeyed ? 1 : part[1];
      this._signal(part[0], Math.min(usual, Math.round(part[2] * width)));
    }
    // Again: narrower axes may have other labels, and so other margins.
    for (let pass = 0; pass < 3; pass++) {
      this._result?.view.resize();
      await this.settled();
      if (this._result === null) {
        return;
      }
      const [drawn, columns] = [this._drawnWidth(), this._columnsDrawn()];
      const cell = frames(this._view())[0]?.width ?? 0;
      if (drawn === 0 || cell === 0) {
        return;
      }
      const next = Math.max(40, Math.floor(cell + (width - drawn) / columns));
      if (next === cell || (drawn <= width && width - drawn < columns)) {
        return;
      }
      this._recipe = { ...this._recipe, width: next };
      if (!this._signal('cell_width', next)) {
        this._signal('width', next);
      }
    }
    await this.settled();
  }

  async restyle(theme: ITheme): Promise<void> {
    this._theme = theme;
    await this._embed();
  }

  /** Resolves when everything asked so far is drawn. Calls of one moment share one pass. */
  settled(): Promise<void> {
    // Everything that is set within one turn of the event loop is one pass of Vega. What is set while the
    // pass runs is the next one's.
    this._pass ??= Promise.resolve().then(async () => {
      this._pass = null;
      const view = this._result?.view;
      await view?.runAsync();
      // Only a layout says for how many pixels a picture is.
      const fitted = view && view === this._result?.view ? fitImages(view, devicePixelRatio) : [];
      if (view && fitted.length > 0) {
        fitted.forEach(item => (view as unknown as IDirtyable).dirty(item));
        await view.runAsync();
      }
    });
    return this._pass;
  }

  /** Return where the plots are, in pixels from the node's upper left corner. */
  frames(): IPlotFrame[] {
    return this._result ? frames(this._result.view) : [];
  }

  /** Return the picture's upper left corner in the page's pixels. */
  origin(): { left: number; top: number } {
    return (this.node.querySelector('.marks') ?? this.node).getBoundingClientRect();
  }

  /** Return what lies under a pointer event, or null outside every plot. */
  locate(event: { clientX: number; clientY: number }): IPlace | null {
    const box = this.origin();
    return this._result ? locate(this._result.view, event.clientX - box.left, event.clientY - box.top) : null;
  }

  /** Return the picture as SVG text, light, with its title and caption inside. */
  async toSVG(words: ICaption, recipe = this._recipe): Promise<string> {
    return this._export(words, recipe, svgOf);
  }

  /** Return the picture as a PNG data URL at twice its size, light, with its title and caption inside. */
  async toPNG(words: ICaption, recipe = this._recipe): Promise<string> {
    return this._export(words, recipe, async view => (await view.toCanvas(2)).toDataURL('image/png'), 2);
  }

  dispose(): void {
    if (this.isDisposed) {
      return;
    }
    this.isDisposed = true;
    this._result?.finalize();
    this._result = null;
    this.node.replaceChildren();
  }

  /** What an exported picture is drawn from: a recipe in the size and zoom that are shown. */
  exported(from = this._recipe): IRecipe {
    const { width, height, params } = this._recipe;
    return {
      ...from,
      ...(width === undefined ? {} : { width }),
      ...(height === undefined ? {} : { height }),
      params: { ...params, ...from.params },
      datasets: frozen(from.datasets)
    };
  }

  private _export<T>(
    words: ICaption,
    recipe: IRecipe,
    draw: (view: View) => Promise<T>,
    ratio = 1
  ): Promise<T> {
    return withView(this.exported(recipe), { theme: LIGHT_THEME, words }, view => {
      fitImages(view, ratio);
      return draw(view);
    });
  }

  private async _embed(): Promise<void> {
    // Whoever embeds last wins: an earlier one that is still compiling must not replace it.
    const turn = ++this._turn;
    const { embed, vega, interpreter } = await loadVega();
    if (this.isDisposed || turn !== this._turn) {
      return;
    }
    this._vega = vega;
    const stage = document.createElement('div');
    this.embeds += 1;
    const spec = fill(this._recipe, { title: true, hover: true, key: this._recipe.unkeyed ?? false });
    let result: Result;
    try {
      result = await embed(stage, spec as Parameters<typeof embed>[1], {
        mode: 'vega-lite',
        ast: true,
        expr: interpreter,
        actions: false,
        defaultStyle: false,
        hover: false,
        tooltip: false,
        renderer: this._renderer,
        logLevel: vega.Error,
        config: themeConfig(this._theme) as never,
        patch: this._renderer === 'svg' ? writeImages : drawCanvases
      });
    } catch (reason) {
      const cause = reason instanceof Error ? reason.message : String(reason);
      throw new ChartError(
        `Could not draw the ${this._recipe.template} chart: ${cause}. Reload the page and try again.`
      );
    }
    if (this.isDisposed || turn !== this._turn) {
      result.finalize();
      return;
    }
    this._result?.finalize();
    this._result = result;
    (result.view as unknown as IDirtyable).cleanThreshold = MOST_GONE;
    this.node.replaceChildren(stage);
    // What changed while the spec was being embedded.
    Object.entries(this._recipe.params).forEach(([name, value]) => this._signal(name, value));
    for (const [name, rows] of Object.entries(this._recipe.datasets)) {
      this.change(name, rows);
    }
    this._unfitted = true;
    await this.resize(this._fit);
    await this.settled();
  }

  /** Have the next pass draw the images again, and nothing else. */
  private _repaint(): void {
    const view = this._result?.view;
    if (view) {
      images(view).forEach(item => (view as unknown as IDirtyable).dirty(item));
    }
  }

  private _view(): View {
    if (this._result === null) {
      throw new ChartError('Expected a drawn chart and found a disposed one. Mount it again.');
    }
    return this._result.view;
  }

  private _signal(name: string, value: unknown): boolean {
    try {
      this._result?.view.signal(name, toVega(value));
      return true;
    } catch {
      return false; // Not every template has every param.
    }
  }

  /** Width of the whole picture in pixels, margins and legends included. */
  private _drawnWidth(): number {
    const marks = this.node.querySelector<HTMLElement | SVGElement>('.marks');
    return parseFloat(marks?.style.width || marks?.getAttribute('width') || '0');
  }

  private _columnsDrawn(): number {
    return new Set(this.frames().map(frame => frame.left)).size || 1;
  }

  private _recipe: IRecipe;
  private _theme: ITheme;
  private readonly _renderer: 'canvas' | 'svg';
  private _result: Result | null = null;
  private _vega: typeof import('vega') | null = null;
  private _pass: Promise<void> | null = null;
  /** How often the spec was embedded: 1, and one more for each new theme or shape. */
  embeds = 0;
  private _turn = 0;
  private _fit = 0;
  private readonly _space = new TextSpace();
  private _unfitted = true;
  isDisposed = false;
}

/**
 * Have the pictures of a chart painted for the pixels that they take.
 *
 * @param ratio - Pixels of the device to one of the page.
 * @returns Those that were painted over.
 */
const fitImages = (view: View, ratio: number): object[] =>
  images(view).filter(({ datum = {}, image, width = 0, height = 0 }) =>
    fitCanvas(datum, image, Math.abs(width) * ratio, Math.abs(height) * ratio)
  );

const sameValue = (before: unknown, after: unknown): boolean =>
  before === after || (typeof after === 'object' && JSON.stringify(before) === JSON.stringify(after));

/** Whether rows say the same, field by field. Many rows are not compared. */
function sameRows(before: readonly Row[] | undefined, after: readonly Row[]): boolean {
  if (before === after) {
    return true;
  }
  return (
    before?.length === after.length &&
    after.length <= MOST_COMPARED &&
    after.every((row, at) => Object.entries(row).every(([field, value]) => own(before[at], field) === value))
  );
}

/** The rows with copies of their canvases, which may be painted over before an export is done. */
const frozen = (datasets: IRecipe['datasets']): IRecipe['datasets'] =>
  Object.fromEntries(Object.entries(datasets).map(([name, rows]) => [name, rows.map(withCopy)]));

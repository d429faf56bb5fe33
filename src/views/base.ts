import { Signal, type ISignal } from '@lumino/signaling';
import { Chart, readTheme, watchTheme, Zoom, type IPlace, type IRecipe, type IZoomOptions } from '../charts';
import type { ViewOptions } from '../protocol/views.generated';
import type { IRunSource, SourceChange } from '../store/source';
import { toCode } from './code';
import { copyText, element, saveFile } from './dom';
import { Menu, type IMenuItem } from './menu';
import { Pace } from './pace';
import { connectionState, errorState, renderState, type IState, type IStateActions } from './states';
import { Toolbar, type Control } from './toolbar';
import { Tooltip, type ITip } from './tooltip';
import { untranslated, type Translate } from './translate';
import type { IView, IViewHost } from './view';

/** What a view found to draw. */
export interface IContent {
  recipe: IRecipe;
  /** What the data cover, for zooming. */
  extent: { x: readonly [number, number]; y: readonly [number, number] };
  title: string;
  /** Everything that is not literal, a sentence each. */
  caption: readonly string[];
  summary: string;
  /** Hue beside the title. */
  swatch?: string;
}

/** A picture, or why there is none. */
export type Loaded = { content: IContent } | { state: IState };

/**
 * What all views share: toolbar, title, chart, caption, states, tooltip, keyboard cursor, following, themes, disposal. A view says what to load
 * and what a place of the picture means.
 */
export abstract class BaseView<O extends ViewOptions> implements IView<O> {
  protected constructor(
    node: HTMLElement,
    protected readonly source: IRunSource,
    options: Required<O>,
    protected readonly host: IViewHost = {},
    zoom: IZoomOptions = { axes: 'x', least: 2 }
  ) {
    this.t = host.translate ?? untranslated;
    this._options = options;
    this._zoomOptions = zoom;
    this.node = node;
    this._toolbar = new Toolbar(
      this.t('View settings'),
      new Menu(
        this.t('More actions'),
        () => this.menu(),
        reason => this._fail(reason)
      ).node
    );
    this._titleNode = element('h3', { class: 'jp-MegalensView-title' });
    this._banner = element('div', { class: 'jp-MegalensBanner', hidden: '' });
    this._plot = element('div', { class: 'jp-MegalensPlot' });
    this._overlay = element('div', { class: 'jp-MegalensOverlay', 'aria-hidden': 'true' });
    this._stage = element(
      'div',
      { class: 'jp-MegalensStage', tabindex: '0', role: 'application' },
      this._plot,
      this._overlay
    );
    this._stage.setAttribute('aria-roledescription', this.t('chart'));
    this._tooltip = new Tooltip(this._stage);
    this._state = element('div', { class: 'jp-MegalensState', hidden: '' });
    this._captionNode = element('p', { class: 'jp-MegalensView-caption' });
    this._live = element('div', { class: 'jp-MegalensHidden', 'aria-live': 'polite' });
    this._root = element(
      'section',
      { class: 'jp-MegalensView' },
      this._toolbar.node,
      this._banner,
      this._titleNode,
      this._stage,
      this._state,
      this._captionNode,
      this._live
    );
    node.append(this._root);
    this._actions = {
      retry: () => this._pace.request(true),
      cancel: () => this._abort?.abort(),
      copyCode: () => copyText(this.code()),
      openRecording: host.openRecording
    };
    this._listen();
    this._drawn = new Promise(resolve => (this._resolveDrawn = resolve));
    this._pace.request(true);
  }

  readonly node: HTMLElement;

  get options(): Readonly<Required<O>> {
    return this._options;
  }

  get changed(): ISignal<this, Readonly<Required<O>>> {
    return this._changed;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  async update(options: Partial<O>): Promise<void> {
    const next = { ...this._options, ...options };
    if (JSON.stringify(next) !== JSON.stringify(this._options)) {
      this._options = next;
      this._changed.emit(next);
      this._renew();
      this._pace.request(true);
    }
    await this.settled();
  }

  settled(): Promise<void> {
    return this._drawn;
  }

  summary(): string {
    return this._content?.summary ?? this._state.querySelector('p')?.textContent ?? '';
  }

  async toSVG(): Promise<string> {
    await this.settled();
    if (this._chart === null || this._content === null) {
      throw new Error(this.t('There is no picture to export yet: %1', this.summary()));
    }
    return this._chart.toSVG({ title: this._content.title, caption: this._content.caption });
  }

  /** The Python call that makes this view. */
  code(): string {
    return toCode(this.plain(), this.host.variable);
  }

  dispose(): void {
    if (this._isDisposed) {
      return;
    }
    this._isDisposed = true;
    this._abort?.abort();
    this._pace.dispose();
    for (const end of this._ends.splice(0)) {
      end();
    }
    this._zoom?.dispose();
    this._chart?.dispose();
    this._root.remove();
    this._resolveDrawn();
    Signal.clearData(this);
  }

  /** The options as the union that all views share. */
  protected abstract plain(): ViewOptions;

  /** Ask the source and shape what it answers. */
  protected abstract load(signal: AbortSignal): Promise<Loaded>;

  /** The toolbar's controls as things are now. */
  protected abstract controls(): Control[];

  /** Whether news from the run changes the picture. */
  protected abstract concerns(change: SourceChange): boolean;

  /** What is under the pointer: the tip, and where to put the cursor. */
  protected abstract probe(place: IPlace): { tip: ITip; mark: IMark } | null;

  /** Answer a key: what to say and what to mark, or null when the key means nothing here. */
  protected abstract move(key: string): { said: string; mark: IMark; copy?: string } | null;

  /** Where the mark lies now, after data or zoom changed; null when it is gone. */
  protected abstract tipOf(mark: IMark): ITip | null;

  protected menu(): IMenuItem[] {
    const { exportReport } = this.host;
    return [
      { label: this.t('Copy as code'), run: () => copyText(this.code()) },
      { label: this.t('Copy summary'), run: () => copyText(this.summary()) },
      {
        label: this.t('Save picture as SVG'),
        run: async () => {
          const url = URL.createObjectURL(new Blob([await this.toSVG()], { type: 'image/svg+xml' }));
          saveFile(`${this._options.view}.svg`, url);
          URL.revokeObjectURL(url);
        }
      },
      {
        label: this.t('Save picture as PNG'),
        run: async () => {
          const words = { title: this._content?.title ?? '', caption: this._content?.caption ?? [] };
          saveFile(`${this._options.view}.png`, (await this._chart?.toPNG(words)) ?? '');
        }
      },
      { label: this.t('Reset zoom'), run: () => this._zoom?.reset() },
      ...(exportReport ? [{ label: this.t('Export report…'), run: () => exportReport(this.plain()) }] : [])
    ];
  }

  /** What the states' actions do; a view adds its own. */
  protected get actions(): IStateActions {
    return this._actions;
  }

  /** Change options from the toolbar. */
  protected choose(options: Partial<O>): void {
    void this.update(options);
  }

  protected get chart(): Chart | null {
    return this._chart;
  }

  protected get zoom(): Zoom | null {
    return this._zoom;
  }

  /** Whether the page around the view is dark. */
  protected get isDark(): boolean {
    return readTheme(this._root).dark;
  }

  /** Width in pixels that the picture may take; 640 where the page has no layout. */
  protected get width(): number {
    return this._stage.clientWidth || 640;
  }

  protected readonly t: Translate;

  private _listen(): void {
    const onChange = (_: IRunSource, change: SourceChange): void => {
      if (
        change.kind === 'connection' ||
        change.kind === 'hello' ||
        change.kind === 'configured' ||
        this.concerns(change)
      ) {
        this._renew();
        this._pace.request();
      }
    };
    this.source.changed.connect(onChange);
    this._ends.push(() => this.source.changed.disconnect(onChange));
    this._ends.push(
      watchTheme(this.node, () => {
        void this._chart?.restyle(readTheme(this._root)).then(() => this._place());
      })
    );
    if (typeof ResizeObserver === 'function') {
      let before = 0;
      const observer = new ResizeObserver(() => {
        if (this._stage.clientWidth > 0 && this._stage.clientWidth !== before) {
          before = this._stage.clientWidth;
          this._renew();
          this._pace.request();
        }
      });
      observer.observe(this._stage);
      this._ends.push(() => observer.disconnect());
    }
    this._stage.addEventListener('pointermove', event => this._onPointer(event));
    this._stage.addEventListener('pointerleave', () => this._unmark());
    this._stage.addEventListener('keydown', event => this._onKey(event));
  }

  /** From now on `settled` waits for the next drawing. */
  private _renew(): void {
    if (this._settledOnce) {
      this._settledOnce = false;
      this._drawn = new Promise(resolve => (this._resolveDrawn = resolve));
    }
  }

  private readonly _pace = new Pace(async () => {
    if (this._zoom?.isDragging) {
      // The picture must not change under the hand; the next frame will.
      this._pace.request();
      return;
    }
    const options = this._options;
    this._abort = new AbortController();
    const { signal } = this._abort;
    const slow = setTimeout(() => this._content ?? this._show(this._loading()), 250);
    try {
      const loaded = await this.load(signal);
      if (this._isDisposed) {
        return;
      }
      if ('content' in loaded) {
        await this._draw(loaded.content);
      } else {
        this._show(loaded.state);
      }
    } catch (reason) {
      if (!this._isDisposed) {
        this._fail(signal.aborted ? new Error(this.t('Reading was cancelled.')) : reason);
      }
    } finally {
      clearTimeout(slow);
    }
    if (!this._isDisposed) {
      this._toolbar.update(this.controls());
      renderState(
        this._banner,
        this._content && connectionState(this.source.connection, this.source.name, this._actions, this.t),
        reason => this._fail(reason)
      );
    }
    if (options === this._options) {
      this._settledOnce = true;
      this._resolveDrawn();
    }
  });

  private _loading(): IState {
    return {
      kind: 'loading',
      sentence: this.t('Reading steps of %1…', this.source.name),
      action: { label: this.t('Cancel'), run: () => this._actions.cancel() }
    };
  }

  private _fail(reason: unknown): void {
    this._show(errorState(reason, this._actions, this.t));
  }

  /** Show a state instead of a picture. */
  private _show(state: IState): void {
    const waits = state.kind === 'empty' || state.kind === 'loading';
    const link = waits
      ? connectionState(this.source.connection, this.source.name, this._actions, this.t)
      : null;
    this._content = null;
    this._root.dataset['state'] = 'none';
    this._unmark();
    renderState(this._state, link ?? state, reason => this._fail(reason));
  }

  private async _draw(content: IContent): Promise<void> {
    this._content = content;
    renderState(this._state, null, () => undefined);
    this._root.dataset['state'] = 'drawn';
    const width = this.width;
    let params = content.recipe.params;
    if (this._zoom) {
      params = { ...params, ...pick(this._zoom.extent(content.extent.x, content.extent.y), params) };
    }
    const recipe = { ...content.recipe, params };
    if (this._chart === null) {
      const chart = await Chart.mount(this._plot, recipe, {
        theme: readTheme(this._root),
        ...(this.host.renderer ? { renderer: this.host.renderer } : {})
      });
      if (this._isDisposed) {
        chart.dispose();
        return;
      }
      this._chart = chart;
      this._zoom = new Zoom(chart, this._zoomOptions);
      this._zoom.extent(content.extent.x, content.extent.y);
      this._zoom.changed.connect(() => void chart.settled().then(() => this._place()));
    } else {
      await this._chart.apply(recipe);
    }
    await this._chart.resize(width);
    if (this._isDisposed) {
      return;
    }
    this._titleNode.textContent = content.title;
    if (content.swatch) {
      const swatch = element('span', { class: 'jp-MegalensSwatch' });
      swatch.style.background = content.swatch;
      this._titleNode.prepend(swatch);
    }
    this._captionNode.textContent = content.caption.join(' ');
    this._stage.setAttribute('aria-label', `${content.title}. ${content.summary}`);
    this._place();
  }

  private _onPointer(event: PointerEvent): void {
    const place = this._zoom?.isDragging ? null : this._chart?.locate(event);
    const found = place ? this.probe(place) : null;
    if (found === null) {
      this._unmark();
      return;
    }
    this._marked = found.mark;
    this._place();
  }

  private _onKey(event: KeyboardEvent): void {
    if (event.target !== this._stage || event.altKey) {
      return;
    }
    const zooms: Record<string, () => void> = {
      '+': () => this._zoom?.by(0.8),
      '=': () => this._zoom?.by(0.8),
      '-': () => this._zoom?.by(1.25),
      '0': () => this._zoom?.reset(),
      Escape: () => this._unmark()
    };
    const copying = event.key === 'c' && (event.ctrlKey || event.metaKey);
    if ((event.ctrlKey || event.metaKey) && !copying) {
      return;
    }
    const zoom = zooms[event.key];
    const moved = zoom === undefined && this._content ? this.move(copying ? 'copy' : event.key) : null;
    if (zoom) {
      zoom();
    } else if (moved) {
      this._marked = moved.mark;
      this._live.textContent = moved.said;
      if (moved.copy !== undefined) {
        void copyText(moved.copy).catch(reason => this._fail(reason));
      }
      void this._chart?.settled().then(() => this._place());
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  private _unmark(): void {
    this._marked = null;
    this._overlay.replaceChildren();
    this._tooltip.hide();
  }

  /** Put cursor and tooltip where their data are now. */
  private _place(): void {
    const tip = this._marked && this._content ? this.tipOf(this._marked) : null;
    const box = this._marked && tip ? this._boxOf(this._marked) : null;
    if (tip === null || box === null) {
      this._unmark();
      return;
    }
    const outline = element('div', { class: `jp-MegalensCursor jp-mod-${box.kind}` });
    Object.assign(outline.style, {
      left: `${box.left}px`,
      top: `${box.top}px`,
      width: `${box.width}px`,
      height: `${box.height}px`
    });
    this._overlay.replaceChildren(outline);
    this._tooltip.show(tip, box.left + box.width, box.top + box.height / 2);
  }

  private _boxOf(
    mark: IMark
  ): { left: number; top: number; width: number; height: number; kind: string } | null {
    const chart = this._chart;
    const frame = chart
      ?.frames()
      .find(each => mark.facet === null || each.facet[mark.facet[0]] === mark.facet[1]);
    if (!chart || !frame || !this._zoom) {
      return null;
    }
    const { x0, x1, y0, y1 } = this._zoom.domain;
    const [left, right] = [(mark.x[0] - x0) / (x1 - x0), (mark.x[1] - x0) / (x1 - x0)];
    const [top, bottom] = mark.y ? [(mark.y[0] - y0) / (y1 - y0), (mark.y[1] - y0) / (y1 - y0)] : [0, 1];
    if (right < 0 || left > 1 || bottom < 0 || top > 1) {
      return null;
    }
    const hold = (part: number): number => Math.min(1, Math.max(0, part));
    const marks = this._plot.querySelector('.marks')?.getBoundingClientRect();
    const stage = this._stage.getBoundingClientRect();
    return {
      left: (marks?.left ?? 0) - stage.left + frame.left + hold(left) * frame.width,
      top: (marks?.top ?? 0) - stage.top + frame.top + hold(top) * frame.height,
      width: (hold(right) - hold(left)) * frame.width,
      height: (hold(bottom) - hold(top)) * frame.height,
      kind: mark.y ? 'cell' : 'rule'
    };
  }

  private _options: Required<O>;
  private _content: IContent | null = null;
  private _chart: Chart | null = null;
  private _zoom: Zoom | null = null;
  private _marked: IMark | null = null;
  private _abort: AbortController | null = null;
  private _settledOnce = false;
  private _drawn: Promise<void>;
  private _resolveDrawn: () => void = () => undefined;
  private _isDisposed = false;
  private readonly _zoomOptions: IZoomOptions;
  private readonly _actions: IStateActions;
  private readonly _toolbar: Toolbar;
  private readonly _tooltip: Tooltip;
  private readonly _root: HTMLElement;
  private readonly _titleNode: HTMLElement;
  private readonly _banner: HTMLElement;
  private readonly _stage: HTMLElement;
  private readonly _plot: HTMLElement;
  private readonly _overlay: HTMLElement;
  private readonly _state: HTMLElement;
  private readonly _captionNode: HTMLElement;
  private readonly _live: HTMLElement;
  private readonly _ends: (() => void)[] = [];
  private readonly _changed = new Signal<this, Readonly<Required<O>>>(this);
}

/** What is marked, in the units of the axes: a cell, or with `y` null a whole column. */
export interface IMark {
  /** Field and value of the facet that it lies in; null where there is one plot. */
  facet: readonly [string, unknown] | null;
  x: readonly [number, number];
  y: readonly [number, number] | null;
}

/** Keep of the domain what a template has. */
function pick(
  domain: Record<string, number>,
  params: Readonly<Record<string, unknown>>
): Record<string, number> {
  return Object.fromEntries(Object.entries(domain).filter(([name]) => name in params));
}

import { Signal, type ISignal } from '@lumino/signaling';
import {
  warmVega,
  watchTheme,
  type Chart,
  type IFrame,
  type IPlace,
  type IZoomOptions,
  type Zoom
} from '../../charts';
import type { ViewOptions } from '../../protocol/views.generated';
import { isOver } from '../../store/is-over';
import type { IPointed } from '../../store/run-link';
import type { IRunSource, SourceChange } from '../../store/source';
import { toCode } from '../code';
import type { IContent, IMark, IMoved, Loaded } from '../shared/content';
import { Cursor } from './cursor';
import { copyText } from './dom';
import { Drawing } from './drawing';
import { followHand } from './follow-hand';
import { Linked, type ILinkedMarks, type ILinkedView } from './linked';
import { Menu } from './menu';
import { withOrigin } from '../shared/origin-words';
import { Pace } from './pace';
import { Picture } from './picture';
import { Shell } from './shell';
import {
  connectionState,
  errorState,
  readingState,
  renderState,
  type IState,
  type IStateActions
} from '../shared/states';
import { Toolbar, type Control } from './toolbar';
import type { ITip } from './tooltip';
import { untranslated, type Translate } from '../shared/translate';
import type { IView, IViewHost } from '../view';
import { viewMenu, type IMenuActions } from './view-menu';
import { watchSize } from './watch-size';
import { ViewError } from '../shared/view-error';

/** After this long without an answer a view says that it is reading, ms. */
const SLOW = 250;

/**
 * What all views share: loading at a bounded pace, the chart, states, keyboard, pointer, themes, disposal. A view says what to
 * load and what a place of the picture means.
 */
export abstract class BaseView<O extends ViewOptions> implements IView<O>, ILinkedView {
  protected constructor(
    readonly node: HTMLElement,
    protected readonly source: IRunSource,
    options: Required<O>,
    protected readonly host: IViewHost,
    zoomOptions: IZoomOptions
  ) {
    this.t = host.translate ?? untranslated;
    this._options = options;
    const menu = new Menu(
      this.t('More actions'),
      () => viewMenu(this, `${source.name}-${options.view}`, this.plain(), this.menuActions(), this.t),
      reason => this.fail(reason)
    );
    this._toolbar = new Toolbar(this.t('View settings'), menu.node);
    this._toolbar.node.hidden = host.toolbar !== undefined;
    this._shell = new Shell(this._toolbar.node, this.t);
    this._cursor = new Cursor(this._shell, mark => (this._content ? this.tipOf(mark) : null));
    this._linked = new Linked(source.link, this._shell, this, this.t);
    this._picture = new Picture(this._shell, host, zoomOptions, {
      zoomed: () => this.zoomed?.(),
      placed: () => this._place()
    });
    node.append(this._shell.root);
    this._actions = {
      retry: () => this._pace.request(true),
      cancel: () => this._abort?.abort(),
      copyCode: () => copyText(this.code()),
      openRecording: host.openRecording
    };
    this._listen();
    this._pace.request(true);
  }

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
    if (!this._isDisposed && JSON.stringify(next) !== JSON.stringify(this._options)) {
      this._options = next;
      this._changed.emit(next);
      this._request(true);
    }
    await this.settled();
  }

  settled(): Promise<void> {
    return this._drawing.ended;
  }

  summary(): string {
    return this._content?.summary ?? this._shell.state.querySelector('p')?.textContent ?? '';
  }

  async toSVG(): Promise<string> {
    const [chart, content] = await this._exported();
    return chart.toSVG(content, content.printed?.());
  }

  /** The picture with title and caption as a PNG data URL. */
  async toPNG(): Promise<string> {
    const [chart, content] = await this._exported();
    return chart.toPNG(content, content.printed?.());
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
    this._ends.splice(0).forEach(end => end());
    this._linked.dispose();
    this._picture.dispose();
    this._shell.root.remove();
    this._drawing.end();
    Signal.clearData(this);
  }

  abstract pointedBy(mark: IMark): IPointed;

  abstract marksOf(at: IPointed): ILinkedMarks;
  /** Read and draw again, now or with the next picture. */
  refresh(now = true): void {
    this._request(now);
  }

  /** The options as the union that all views share. */
  protected abstract plain(): ViewOptions;

  /** Ask the source and shape what it answers. */
  protected abstract load(signal: AbortSignal): Promise<Loaded>;

  /** The toolbar's controls as things are now. */
  protected abstract controls(): Control[];

  /** Whether news from the run changes the picture. */
  protected abstract concerns(change: SourceChange): boolean;

  /** What is under the pointer. */
  protected abstract probe(place: IPlace): IMark | null;

  /** Answer a key; null when it means nothing here. */
  protected abstract move(key: string): IMoved | null;

  /** What to say of a mark as the data are now; null when it is gone. */
  protected abstract tipOf(mark: IMark): ITip | null;

  /** The steps to draw: those asked for, and of these those chosen in another view. Null is all. */
  protected within(steps: [number, number] | null): [number, number] | null {
    return this._linked.within(steps);
  }

  /** What the states' actions do; a view adds its own. */
  protected get actions(): IStateActions {
    return this._actions;
  }

  /** Change options from the toolbar. */
  protected choose(options: Partial<O>): void {
    void this.update(options);
  }

  protected get zoom(): Zoom | null {
    return this._picture.zoom;
  }

  /** What lies under the pointer, as the axes have it. */
  protected locate(event: MouseEvent): IPlace | null {
    return this._picture.locate(event);
  }

  /** Whether the page around the view is dark. */
  protected get isDark(): boolean {
    return this._picture.isDark;
  }

  /** Whether a picture drawn anew shows the same place, so that it may be drawn under a hand that drags. */
  protected get drawsWhileDragged(): boolean {
    return false;
  }

  /** Pixels of the first plot; null while nothing is drawn. */
  protected get frame(): IFrame | null {
    return this._picture.frame;
  }

  /** Say what is waited for, while there is no picture. */
  protected waits(sentence: string): void {
    if (!this._isDisposed && this._content === null) {
      this._show({ ...readingState('', this._actions, this.t), sentence });
    }
  }

  /** What is shown was changed by zooming or moving; for pictures that do not hold all that can be zoomed into. */
  protected zoomed?(): void;

  /** The page has another theme; for pictures whose colours are not the chart's own. */
  protected restyled?(): void;

  /** Width in pixels that the picture may take; 640 where the page has no layout. */
  protected get width(): number {
    return this._picture.width;
  }

  protected readonly t: Translate;

  /** What the menu can do beside copying and saving. */
  protected menuActions(): IMenuActions {
    const { x0 = 0, x1 = 0 } = this.zoom?.domain ?? {};
    const chooses = this._linked.canChoose && this.zoom?.isZoomed;
    return {
      resetZoom: () => this.zoom?.reset(),
      chooseShown: chooses ? () => this._linked.chooseSpan([x0, x1]) : undefined,
      exportReport: this.host.exportReport
    };
  }

  private async _exported(): Promise<[Chart, IContent]> {
    await this.settled();
    const { chart } = this._picture;
    if (!chart || !this._content?.recipe) {
      throw new ViewError(this.t('There is no picture to export yet. %1', this.summary()));
    }
    return [chart, this._content];
  }

  private _listen(): void {
    const onChange = (_: IRunSource, change: SourceChange): void => {
      // Of how the training is only that it has ended is told here.
      const always = change.kind === 'status' ? isOver(this.source) : change.kind !== 'rows';
      if (always || (this.concerns(change) && !this._linked.misses(change))) {
        this._request(false);
      }
    };
    this.source.changed.connect(onChange);
    this._ends.push(() => this.source.changed.disconnect(onChange));
    this._ends.push(
      watchTheme(this.node, () => {
        this._picture.restyle();
        this.restyled?.();
      })
    );
    const { stage } = this._shell;
    this._ends.push(watchSize(stage, this.host.frame, () => this._request(false)));
    followHand(
      {
        chart: () => this._picture.chart,
        zoom: () => this.zoom,
        isDrawn: () => this._content !== null,
        probe: place => this.probe(place),
        move: key => this.move(key),
        place: () => this._place(),
        fail: reason => this.fail(reason)
      },
      this._shell,
      this._cursor,
      this._linked
    );
  }

  /** Ask for a drawing; `settled` waits for it from now on. */
  private _request(now: boolean): void {
    this._drawing.begin();
    this._pace.request(now);
  }

  private async _refresh(): Promise<void> {
    if (this.zoom?.isDragging && !this.drawsWhileDragged) {
      // The picture must not change under the hand; the next frame will.
      this._pace.request();
      return;
    }
    const options = this._options;
    this._abort = new AbortController();
    const { signal } = this._abort;
    const slow = setTimeout(() => {
      if (this._content === null) {
        this._show(readingState(this.source.name, this._actions, this.t));
        // There is time now for what drawing needs; what fails is told when it draws.
        warmVega().catch(() => undefined);
      }
    }, SLOW);
    try {
      const loaded = await this.load(signal);
      if (this._isDisposed) {
        return;
      }
      if ('content' in loaded) {
        await this._draw(withOrigin(loaded.content, this.source.hello, this.t));
      } else {
        this._show(this._linked.emptied(loaded.state));
      }
    } catch (reason) {
      this.fail(signal.aborted ? new ViewError(this.t('Reading was cancelled.')) : reason);
    } finally {
      clearTimeout(slow);
    }
    if (this._isDisposed) {
      return;
    }
    (this.host.toolbar ?? (all => this._toolbar.update(all)))([
      ...this.controls(),
      ...this._linked.controls()
    ]);
    renderState(this._shell.banner, this._content && this._link(), reason => this.fail(reason));
    if (options === this._options) {
      this._drawing.drawn();
    }
  }

  /** What is drawn now is not all: the rest is drawn when it has come, and `settled` waits for it. */
  protected follow(rest: Promise<unknown>): void {
    void this._drawing.until(rest).then(() => {
      if (!this._isDisposed) {
        this.refresh(false);
      }
    });
  }

  /** Say that something went wrong, with the way to try it again. */
  protected fail(reason: unknown): void {
    if (!this._isDisposed) {
      this._show(errorState(reason, this._actions, this.t));
    }
  }

  private _link(): IState | null {
    return connectionState(this.source, this._actions, this.t);
  }

  /** Show a state instead of a picture. */
  private _show(state: IState): void {
    // That a training has ended does not say why there is no picture.
    const waits = (state.kind === 'empty' || state.kind === 'loading') && !isOver(this.source);
    this._content = null;
    this._shell.present(null);
    this._cursor.clear();
    this._linked.place(null, null);
    renderState(this._shell.state, (waits ? this._link() : null) ?? state, reason => this.fail(reason));
  }

  private async _draw(content: IContent): Promise<void> {
    this._content = content;
    renderState(this._shell.state, null, () => undefined);
    this._shell.present(content);
    await this._picture.draw(content);
  }

  protected _place(): void {
    if (!this._isDisposed) {
      const { chart, zoom } = this._picture;
      this._cursor.place(chart, zoom);
      this._linked.place(this._content && chart, zoom);
    }
  }

  private _options: Required<O>;
  private _content: IContent | null = null;
  private _abort: AbortController | null = null;
  private readonly _drawing = new Drawing();
  private _isDisposed = false;
  private readonly _pace = new Pace(() => this._refresh());
  private readonly _actions: IStateActions;
  private readonly _toolbar: Toolbar;
  private readonly _shell: Shell;
  private readonly _cursor: Cursor;
  private readonly _linked: Linked;
  private readonly _picture: Picture;
  private readonly _ends: (() => void)[] = [];
  private readonly _changed = new Signal<this, Readonly<Required<O>>>(this);
}

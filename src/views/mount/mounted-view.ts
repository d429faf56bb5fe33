import { warmVega, watchTheme, type Chart, type ICaption, type IRecipe } from '../../charts';
import { viewDefaults } from '../../protocol/view-options';
import type { ViewOptions } from '../../protocol/views.generated';
import { isOver, type IRunSource, type SourceChange } from '../../store/source';
import type { IContent, IMark } from '../shared/content';
import { type Control, faultControls } from '../shared/control';
import { type Create, type IViewModel, ViewError } from '../shared/definition';
import { eventsOf, withEvents } from '../shared/event-strip';
import { withOrigin } from '../shared/origin-words';
import {
  connectionState,
  errorState,
  lateState,
  readingState,
  type IState,
  type IStateActions
} from '../shared/states';
import { tipSaid } from '../shared/table';
import type { IViewEnvironment } from '../shared/view-model';
import type { IViewHost } from '../view';
import { Cursor, framesOf, EventMarks } from './cursor';
import { copyText, saveText, watchSeen, watchSize } from './dom';
import { AWAITED_INTERVAL, CALM_INTERVAL, Drawing, LEAST_INTERVAL, Pace, renderState } from './drawing';
import { followHand } from './follow-hand';
import { LinePainter } from './line-painter';
import { Linked } from './linked';
import { Menu, viewMenu, type IMenuActions } from './menu';
import { Mounted } from './mounted';
import { type IRoom, Picture } from './picture';
import { Shell } from './shell';
import { Toolbar } from './toolbar';

/** After this long without an answer a view says that it is reading, ms. */
const SLOW = 250;
/** After this long a view says that its picture is old, seconds. */
const LATE = 5;

/** How a part of a composition differs from a view that stands alone. */
export interface IMountedPart<O extends ViewOptions> {
  /** Least time between two drawings that the run asks for, ms. */
  readonly every: number;
  /** Takes the controls, which a toolbar of the whole holds. */
  toolbar(controls: readonly Control[]): void;
  /** What the frame leaves for the plots of all parts; absent where the whole does not fill it. */
  readonly room?: () => IRoom;
  /** Changes options of the whole: a part has none of its own. */
  choose(options: Partial<O>): void;
}

/**
 * The part of a view that touches the page, whichever view it is: loading at a bounded pace, the chart,
 * states, keyboard, pointer, themes, disposal. What is loaded and what a position in the picture means it
 * asks the view's pure part, which in turn knows it as its environment.
 */
export class MountedView<O extends ViewOptions> extends Mounted<O> {
  /**
   * @param create Makes the pure part.
   * @param part Set where the view is one of several under one toolbar.
   */
  constructor(
    node: HTMLElement,
    private readonly _source: IRunSource,
    options: Required<O>,
    host: IViewHost,
    create: Create<O>,
    private readonly _part: IMountedPart<O> | null = null
  ) {
    super(node, options, host);
    const menu = new Menu(
      this.t('More actions'),
      () => viewMenu(this, `${_source.name}-${options.view}`, this.plain, this.menu, this.t),
      reason => this._fail(reason)
    );
    this._toolbar = new Toolbar(this.t('View settings'), menu.node, this.t);
    this._toolbar.node.hidden = _part !== null;
    this._shell = new Shell(this._toolbar.node, this.t);
    this.picture = new Picture(
      this._shell,
      { ...host, frame: host.frame, room: _part?.room },
      {
        content: () => this._content,
        zoomed: () => this.model.zoomed?.(),
        placed: () => this._place()
      }
    );
    this._actions = {
      retry: () => this._pace.request(true),
      cancel: () => this._abort?.abort(),
      reset: () => this._reset(),
      copy: copyText,
      copyCode: () => copyText(this.code()),
      save: saveText,
      openRecording: host.openRecording
    };
    this.model = create(_source, this._environment());
    this._cursor = new Cursor(
      this._shell,
      mark => (this._content ? this.model.tipOf(mark) : null),
      mark => this.model.bandOf?.(mark) ?? []
    );
    this._linked = new Linked(_source.link, this._shell, this.model, () => this.refresh(), this.t);
    this._eventMarks = new EventMarks(this._shell.stage, step => this._linked.tellStep(step));
    this._shell.stage.append(this._eventMarks.node);
    this._shell.onInsight = () => this._goTo(this.model.insight?.() ?? null);
    node.append(this._shell.root);
    this._listen();
    this._pace.request(true);
  }

  /** What is shown, without the page. */
  readonly model: IViewModel;
  readonly picture: Picture;

  protected chosen(): void {
    this.refresh(true);
  }

  async settled(): Promise<void> {
    // Whoever waits for the picture gets it, in sight or not.
    this._waiting += 1;
    this._pace.hurry();
    await this._drawing.ended;
    this._waiting -= 1;
  }

  summary(): string {
    return this._content?.summary ?? this._shell.state.querySelector('p')?.textContent ?? '';
  }

  async toSVG(): Promise<string> {
    const [chart, content] = await this._exported();
    return chart.toSVG(content, this._printed(content));
  }

  async toPNG(): Promise<string> {
    const [chart, content] = await this._exported();
    return chart.toPNG(content, this._printed(content));
  }

  protected end(): void {
    this._abort?.abort();
    this._pace.dispose();
    this._ends.splice(0).forEach(end => end());
    this._linked.dispose();
    this._toolbar.dispose();
    this.model.dispose?.();
    this.picture.dispose();
    this._shell.root.remove();
    this._drawing.end();
  }

  /** Read and draw again, now or with the next picture, at least `least` ms after the last one. */
  refresh(now = true, least = LEAST_INTERVAL): void {
    this._drawing.begin();
    this._pace.request(now, least);
  }

  /** Whether there is a picture, or something else that was read. */
  get isDrawn(): boolean {
    return this._content !== null;
  }

  /** Draw again where what is around the picture leaves it another height. */
  refit(): void {
    if (this.picture.isUnfit) {
      this.refresh(false);
    }
  }

  get menu(): IMenuActions {
    const { zoom } = this.picture;
    const { x0 = 0, x1 = 0 } = zoom?.domain ?? {};
    const chooses = this._linked.canChoose && zoom?.isZoomed;
    return {
      resetZoom: () => zoom?.reset(),
      chooseShown: chooses ? () => this._linked.chooseSpan([x0, x1]) : undefined,
      exportReport: this.host.exportReport
    };
  }

  /** What an exported picture is drawn from. Rejects where there is none. */
  async exported(): Promise<{ recipe: IRecipe; words: ICaption }> {
    const [chart, content] = await this._exported();
    return { recipe: chart.exported(this._printed(content)), words: content };
  }

  private async _exported(): Promise<[Chart, IContent]> {
    await this.settled();
    const { chart } = this.picture;
    if (!chart || !this._content?.recipe) {
      throw new ViewError(this.t('There is no picture to export yet. %1', this.summary()));
    }
    return [chart, this._content];
  }

  /** What is drawn where no canvas is. */
  private _printed(content: IContent): IRecipe | undefined {
    const printed = content.printed?.();
    if (!printed) {
      return undefined;
    }
    // At the place that is shown.
    const shown = Object.entries(this.picture.zoom?.domain ?? {});
    const domain = Object.fromEntries(shown.filter(([name]) => Object.hasOwn(printed.params, name)));
    return { ...printed, params: { ...printed.params, ...domain } };
  }

  /**
   * What the pure part knows of this page. Everything is asked for when it is needed: nothing of it is there
   * from the beginning.
   */
  private _environment(): IViewEnvironment<O> {
    const picture = this.picture;
    const read = (): Readonly<Required<O>> => this.options;
    const linked = (): Linked => this._linked;
    const painter = this.host.renderer === 'svg' ? null : new LinePainter();
    return {
      t: this.t,
      actions: this._actions,
      isUtc: false,
      painter,
      runs: this.host.runs ?? null,
      get options() {
        return read();
      },
      get width() {
        return picture.width;
      },
      get frame() {
        return picture.frame;
      },
      get zoom() {
        return picture.zoom;
      },
      get isDark() {
        return picture.isDark;
      },
      get pinned() {
        return linked().pinned;
      },
      get pinnedPosition() {
        return linked().position;
      },
      pinPosition: at => this._linked.pinPosition(at),
      within: steps => this._linked.within(steps),
      choose: options =>
        this._part ? this._part.choose(options) : this.update(options).catch(reason => this._fail(reason)),
      refresh: now => this.refresh(now),
      place: () => this._place(),
      goTo: mark => this._goTo(mark),
      waits: sentence => this._waits(sentence),
      follow: rest => this._follow(rest),
      say: text => this._shell.say(text),
      fail: reason => this._fail(reason)
    };
  }

  private _listen(): void {
    const onChange = (_: IRunSource, change: SourceChange): void => {
      // Of how the training is only that it has ended is told here.
      const always = change.kind === 'status' ? isOver(this._source) : change.kind !== 'rows';
      const happened =
        change.kind === 'rows' && ['alarms', 'audit'].includes(change.stream) && this.model.stepAxis();
      // Asked in any case: a view remembers that there is more to read.
      const concerned = this.model.concerns(change);
      if (always || happened) {
        this.refresh(false, Math.max(LEAST_INTERVAL, this._part?.every ?? 0));
      } else if (concerned && !this._linked.misses(change)) {
        const isAwaited = this.model.isAwaited || this._content === null;
        const usual = isAwaited ? AWAITED_INTERVAL : LEAST_INTERVAL;
        const least = this._isMovedBy(change) ? usual : CALM_INTERVAL;
        this.refresh(false, Math.max(least, this._part?.every ?? 0));
      }
    };
    this._source.changed.connect(onChange);
    this._ends.push(() => this._source.changed.disconnect(onChange));
    this._ends.push(
      watchTheme(this.node, () => {
        this.picture.restyle();
        // Colours that are not the chart's own are chosen as it is read.
        this.refresh(false);
      })
    );
    const { stage } = this._shell;
    const seen = watchSeen(this._shell.root, isSeen => (this._pace.isSeen = isSeen));
    this._pace.onUnseen = seen.ask;
    this._ends.push(seen.end);
    this._ends.push(watchSize(stage, this.host.frame, () => this.refresh(false)));
    followHand(
      {
        chart: () => this.picture.chart,
        zoom: () => this.picture.zoom,
        isDrawn: () => this._content !== null,
        probe: place => this.model.probe(place),
        move: key => this.model.move(key),
        clicked: mark => {
          this.model.clicked?.(mark);
          // What a click chooses stays chosen where it is clicked at again.
          this._linked.clicked(mark, this.model.clicked !== undefined);
        },
        place: () => this._place(),
        fail: reason => this._fail(reason)
      },
      this._shell,
      this._cursor,
      this._linked
    );
  }

  /**
   * Whether what came can be seen: where there are more steps than pixels, one more moves the picture by less
   * than one of them.
   */
  private _isMovedBy(change: SourceChange): boolean {
    const { x0, x1 } = this.picture.zoom?.domain ?? {};
    const shown = x0 === undefined || x1 === undefined ? null : this.model.stepAxis()?.stepsIn([x0, x1]);
    if (!shown || change.kind !== 'rows') {
      return true;
    }
    const [first, last] = shown;
    return (change.lastStep - last) * (this.picture.frame?.width ?? 0) >= last - first;
  }

  private async _refresh(): Promise<void> {
    if (this.picture.zoom?.isDragging && !this.model.drawsWhileDragged) {
      // The picture must not change under the hand; the next frame will.
      this._pace.request();
      return;
    }
    // The options that this drawing is of: others may be chosen while it reads.
    const options = this.options;
    const abort = (this._abort = new AbortController());
    const { signal } = abort;
    const isOld = (): boolean => this.isDisposed || abort !== this._abort;
    let reads = true;
    const late = setTimeout(() => this._tellLate(() => reads), 1000 * LATE);
    setTimeout(() => {
      if (this._content === null && !this.isDisposed) {
        if (reads) {
          this._show(readingState(this._source.name, this._actions, this.t));
        }
        // There is time now for what drawing needs; what fails is told when it draws.
        warmVega().catch(() => undefined);
      }
    }, SLOW);
    try {
      const loaded = await this.model.load(signal);
      // The view may have gone while the source answered; the page is not ours any more.
      if (isOld()) {
        return;
      }
      reads = false;
      if ('content' in loaded) {
        const content = withOrigin(loaded.content, this._source.hello, this.t);
        const axis = this.model.stepAxis();
        const events = axis ? await eventsOf(this._source) : [];
        await this._draw(withEvents(content, events, axis, this.t));
      } else {
        this._show(this._linked.emptied(loaded.state));
      }
    } catch (reason) {
      if (!isOld()) {
        this._fail(signal.aborted ? new ViewError(this.t('Reading was cancelled.')) : reason);
      }
    } finally {
      reads = false;
      clearTimeout(late);
    }
    if (isOld()) {
      return;
    }
    this._showControls(this._controls());
    renderState(this._shell.banner, this._content && this._link(), reason => this._fail(reason));
    // Otherwise the next run, which `update` asked for, draws the newer ones; who waits goes on waiting.
    if (options === this.options) {
      this._drawing.drawn();
    }
  }

  /** Say that the picture which is there is old, and offer to begin with the next one anew. */
  private _tellLate(reads: () => boolean): void {
    const redraw = (): void => {
      this._abort?.abort();
      this._abort = null;
      if (!reads()) {
        this.picture.renew();
      }
      this._pace.restart();
    };
    if (this._content !== null && !this.isDisposed) {
      renderState(this._shell.banner, lateState(LATE, redraw, this.t), reason => this._fail(reason));
    }
  }

  /** What is drawn now is not all: the rest is drawn when it has come, and `settled` waits for it. */
  private _follow(rest: Promise<unknown>): void {
    void this._drawing.until(rest).then(() => {
      if (!this.isDisposed) {
        this.refresh(this._waiting > 0);
      }
    });
  }

  private _fail(reason: unknown): void {
    if (!this.isDisposed) {
      this._show(errorState(reason, this._actions, this.t));
    }
  }

  /** The toolbar's controls. When they fail the picture stays, and the toolbar says so. */
  private _controls(): readonly Control[] {
    try {
      return [...this.model.controls(), ...this._linked.controls()];
    } catch (reason) {
      return faultControls(reason, this._actions, this.t);
    }
  }

  private _reset(): void {
    const options = viewDefaults(this.options.view) as Partial<O>;
    const done = this._part ? this._part.choose(options) : this.update(options);
    void Promise.resolve(done).catch(reason => this._fail(reason));
    this.refresh(true);
  }

  private _showControls(controls: readonly Control[]): void {
    if (this._part) {
      this._part.toolbar(controls);
    } else {
      this._toolbar.update(controls);
    }
  }

  /** Say what is waited for, while there is no picture. */
  private _waits(sentence: string): void {
    if (!this.isDisposed && this._content === null) {
      this._show({ ...readingState('', this._actions, this.t), sentence });
    }
  }

  private _link(): IState | null {
    return connectionState(this._source, this._actions, this.t);
  }

  private _show(state: IState): void {
    // That a training has ended does not say why there is no picture.
    const waits = (state.kind === 'empty' || state.kind === 'loading') && !isOver(this._source);
    this._content = null;
    this._shell.present(null);
    this._cursor.clear();
    this._linked.place(null, null);
    this._eventMarks.place(null, null);
    renderState(this._shell.state, (waits ? this._link() : null) ?? state, reason => this._fail(reason));
  }

  private async _draw(content: IContent): Promise<void> {
    this._content = content;
    renderState(this._shell.state, null, () => undefined);
    this._shell.present(content, this.model.insight !== undefined);
    await this.picture.draw(content, this.model.zooms);
  }

  /** Put the cursor somewhere, in sight, and say what is there. */
  private _goTo(mark: IMark | null): void {
    const { chart, zoom } = this.picture;
    if (!mark || !chart || !zoom || !this._content) {
      return;
    }
    zoom.show(mark, framesOf(mark, chart)[0] ?? null);
    this._cursor.mark = mark;
    this._linked.tell(mark);
    const tip = this.model.tipOf(mark);
    this._shell.say(tip ? tipSaid(tip) : '');
    this._shell.stage.focus();
    void chart.settled().then(() => this._place());
  }

  private _place(): void {
    if (!this.isDisposed) {
      const { chart, zoom } = this.picture;
      this._cursor.place(chart, zoom);
      this._linked.place(this._content && chart, zoom);
      this._eventMarks.place(this._content && chart, zoom);
      this._shell.minimap.place(this._content && chart, zoom, this._shell.stage);
    }
  }

  private _content: IContent | null = null;
  private _abort: AbortController | null = null;
  private readonly _drawing = new Drawing();
  /** How many wait until it is drawn. */
  private _waiting = 0;
  private readonly _pace = new Pace(() => this._refresh());
  private readonly _actions: IStateActions;
  private readonly _toolbar: Toolbar;
  private readonly _shell: Shell;
  private readonly _cursor: Cursor;
  private readonly _linked: Linked;
  private readonly _eventMarks: EventMarks;
  private readonly _ends: (() => void)[] = [];
}

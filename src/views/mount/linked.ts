import type { IDisposable } from '@lumino/disposable';
import { formatInteger, type Chart, type Zoom } from '../../charts';
import type { IPointed, ITextPosition, LinkChange, RunLink, StepRange } from '../../store/run-link';
import type { SourceChange } from '../../store/source';
import type { IStepAxis, Span } from '../shared/links';
import type { ViewModel } from '../shared/view-model';
import type { IMark } from '../shared/content';
import { emptyState, type IState } from '../shared/states';
import type { Control } from '../shared/control';
import { chip } from '../shared/table';
import type { Translate } from '../shared/translate';
import { Brush, type IBrushed } from './brush';
import { drawTrace } from './line-painter';
import { LINKED, markNodes } from './cursor';
import type { Shell } from './shell';

/** Colour of what is under the hand. */
const HAND = 'var(--jp-brand-color1, #2196f3)';

const isCommand = (event: PointerEvent): boolean => event.ctrlKey || event.metaKey;

const wordsOf = ([first, last]: StepRange): { first: string; last: string } => ({
  first: formatInteger(first),
  last: formatInteger(last)
});

/**
 * A view's share in its run's link: it publishes what is pointed at here, marks what is pointed at elsewhere,
 * lets steps be chosen and marks them. While nobody points and nothing is chosen it does nothing.
 */
export class Linked implements IDisposable {
  constructor(
    private readonly _link: RunLink | undefined,
    private readonly _shell: Shell,
    private readonly _view: Pick<
      ViewModel,
      'boxed' | 'choosesBoxes' | 'followsPosition' | 'marksOf' | 'pinned' | 'pointedBy' | 'stepAxis'
    >,
    private readonly _refresh: () => void,
    private readonly _t: Translate
  ) {
    _link?.changed.connect(this._onLink, this);
    const brush = {
      stage: _shell.stage,
      locate: (event: PointerEvent) => (this._axis ? (this._chart?.locate(event) ?? null) : null),
      shown: (): IBrushed => ({ x: this._shown('x'), y: null }),
      draft: (brushed: IBrushed | null) => {
        this._draft = brushed;
        this._draw();
      }
    };
    this._brush = _link
      ? new Brush({ ...brush, takes: event => event.shiftKey, chosen: ({ x }) => this.chooseSpan(x) })
      : null;
    this._box = new Brush({
      ...brush,
      takes: event =>
        (event.shiftKey || (_view.choosesBoxes === true && !isCommand(event) && !this._zoom?.isZoomed)) &&
        _view.boxed !== undefined,
      isLoop: event => !_view.choosesBoxes && !isCommand(event),
      locate: event => this._chart?.locate(event) ?? null,
      shown: () => ({ x: this._shown('x'), y: this._shown('y') }),
      chosen: brushed => _view.boxed?.({ facet: null, ...brushed })
    });
    // What is zoomed already is moved by a drag; with Ctrl it is zoomed further.
    this._magnifier = new Brush({
      ...brush,
      locate: event => (this._axis || _view.choosesBoxes ? (this._chart?.locate(event) ?? null) : null),
      takes: event => !event.shiftKey && (isCommand(event) || !(_view.choosesBoxes ?? this._zoom?.isZoomed)),
      chosen: ({ x }) => this._zoom?.to(x)
    });
  }

  /** Whether steps can be chosen in this view. */
  get canChoose(): boolean {
    return this._link !== undefined && this._axis !== undefined;
  }

  /** Steps that this view must keep to: those chosen in another view. */
  get filter(): StepRange | null {
    const filter = this._link?.filter;
    // Who chose goes on to show all: the band of the chosen steps would fill it, and could not be moved.
    return filter && filter.by !== this ? filter.steps : null;
  }

  /** Keep to the chosen steps as well as to those of the options; null where all may be shown. */
  within(steps: StepRange | null): [number, number] | null {
    const { filter } = this;
    const [from, to] = [filter?.[0] ?? -Infinity, filter?.[1] ?? Infinity];
    const [first, last] = steps ?? [-Infinity, Infinity];
    return filter || steps ? [Math.max(from, first), Math.min(to, last)] : null;
  }

  /** Whether news of the run cannot change what is shown, because it lies past the chosen steps. */
  misses(change: SourceChange): boolean {
    return change.kind === 'rows' && this.filter !== null && change.firstStep > this.filter[1];
  }

  /** Tell the other views what is pointed at here. */
  tell(mark: IMark | null): void {
    this._link?.point(this, mark && this._view.pointedBy(mark));
  }

  /** Tell the other views of a step, or that nothing is pointed at. */
  tellStep(step: number | null): void {
    this._link?.point(this, step === null ? null : { layer: null, step });
  }

  /** Choose the steps within a span of the axis. */
  chooseSpan(span: Span): void {
    const steps = this._axis?.stepsIn(span);
    if (steps) {
      this._link?.choose(this, steps);
    }
  }

  /**
   * Choose from where the cursor was to where it is, as text is selected with Shift and the arrows; null
   * where steps cannot be chosen.
   */
  extend(from: IMark | null, to: IMark): string | null {
    if (this._view.choosesBoxes) {
      this._corner ??= from ?? to;
      const { x, y } = this._corner;
      const rows = [...(y ?? []), ...(to.y ?? [])];
      this._view.boxed?.({
        facet: null,
        x: [Math.min(x[0], to.x[0]), Math.max(x[1], to.x[1])],
        y: [Math.min(...rows), Math.max(...rows)]
      });
      return null;
    }
    const [start, end] = [from && this._view.pointedBy(from).step, this._view.pointedBy(to).step];
    if (!this.canChoose || end === null) {
      return null;
    }
    // The first place stays while Shift is held, so that the range can also grow smaller again.
    this._anchor ??= start ?? end;
    const steps: StepRange = [Math.min(this._anchor, end), Math.max(this._anchor, end)];
    this._link?.choose(this, steps);
    return this._t('Steps %1 to %2 chosen.', formatInteger(steps[0]), formatInteger(steps[1]));
  }

  /** The step that is pinned; null while none is. */
  get pinned(): number | null {
    return this._link?.pinned ?? null;
  }

  /** The position of a generated text that is pinned; null while none is. */
  get position(): ITextPosition | null {
    return this._link?.position ?? null;
  }

  /** Pin a position of a generated text in every view of the run; null unpins. */
  pinPosition(at: ITextPosition | null): void {
    this._link?.pinPosition(at);
  }

  /**
   * Pin the step of a mark, or unpin where it is pinned already or there is no mark.
   *
   * @param keeps Whether what is pinned already stays.
   * @returns The words for it, or null where there is nothing to pin.
   */
  pin(mark: IMark | null, keeps = false): string | null {
    const at = mark && this._view.pointedBy(mark);
    const words = this._view.followsPosition && this._link ? this._pinText(this._link, at, keeps) : null;
    if (words !== null) {
      return words;
    }
    const step = at && at.step;
    if (!this._link || (step === null && this.pinned === null)) {
      return null;
    }
    const next = step === null || (!keeps && step === this.pinned) ? null : step;
    this._link.pin(next);
    return next === null ? this._t('No step is pinned.') : this._t('Step %1 pinned.', formatInteger(next));
  }

  /** Pin what was clicked at: a position of a text, or the step where the axis has steps. */
  clicked(mark: IMark, keeps: boolean): void {
    const words = this.canChoose || this._view.followsPosition ? this.pin(mark, keeps) : null;
    if (words !== null) {
      this._shell.say(words);
    }
  }

  /** As `pin`, of a position; null where it has none, and nothing is pinned that could be unpinned. */
  private _pinText(link: RunLink, at: IPointed | null, keeps: boolean): string | null {
    const before = link.position;
    if (typeof at?.position === 'number' && typeof at.generation === 'number') {
      const { generation, position } = at;
      link.pinPosition({ generation, sequence: at.sequence ?? 0, position });
      // What is pinned already stays the same object.
      if (keeps || link.position !== before) {
        return this._t('Position %1 pinned.', formatInteger(position));
      }
    } else if (at !== null || before === null) {
      return null;
    }
    link.pinPosition(null);
    return this._t('No position is pinned.');
  }

  /** The next range begins anew. */
  settle(): null {
    this._anchor = null;
    this._corner = null;
    return null;
  }

  /** Let go of a drag, or else forget what is marked and chosen in every view of the run. */
  clear(): void {
    this.settle();
    const brush = [this._brush, this._box, this._magnifier].find(each => each?.isDragging);
    if (brush) {
      brush.cancel();
    } else {
      this._link?.clear(this);
      this._view.boxed?.(null);
    }
  }

  /** The toolbar's words on the pinned step and the chosen steps, which take them back. */
  controls(): Control[] {
    const { pinned, _link: link, _t: t } = this;
    const position = this._view.followsPosition ? this.position : null;
    const { filter } = link ?? {};
    const { first, last } = wordsOf(filter?.steps ?? [0, 0]);
    return [
      ...(position
        ? [
            chip(
              'pin-position',
              t('Pinned: position %1', formatInteger(position.position)),
              t('Every view of generated text of this run shows this position. Unpin'),
              () => this.pinPosition(null)
            )
          ]
        : []),
      ...(pinned === null
        ? []
        : [
            chip(
              'pin',
              t('Pinned: step %1', formatInteger(pinned)),
              t('Tips compare with this step, and it is marked in every view of this run. Unpin'),
              () => link?.pin(null)
            )
          ]),
      ...(filter
        ? [
            chip(
              'filter',
              first === last ? t('step %1', first) : t('steps %1–%2', first, last),
              filter.by === this
                ? t('The other views of this run show these steps only. Show all steps again')
                : t('Chosen in another view of this run. Show all steps again'),
              () => link?.choose(this, null)
            )
          ]
        : [])
    ];
  }

  /** What to say where nothing is left to draw: that the chosen steps are why, when they are. */
  emptied(state: IState): IState {
    const { filter, _t: t } = this;
    if (filter === null || state.kind !== 'empty') {
      return state;
    }
    const { first, last } = wordsOf(filter);
    return emptyState(
      t('Nothing here lies in steps %1 to %2, which were chosen in another view.', first, last),
      t('Show all steps'),
      () => this._link?.choose(this, null)
    );
  }

  /** Put everything where its data are drawn now. */
  place(chart: Chart | null, zoom: Zoom | null): void {
    this._chart = chart;
    this._zoom = zoom;
    this._draw();
  }

  dispose(): void {
    if (this.isDisposed) {
      return;
    }
    this.isDisposed = true;
    this._brush?.dispose();
    this._box.dispose();
    this._magnifier.dispose();
    this._link?.changed.disconnect(this._onLink, this);
    this._link?.point(this, null);
  }

  /** What is shown of an axis now. */
  private _shown(axis: 'x' | 'y'): Span {
    const { x0 = 0, x1 = 1, y0 = 0, y1 = 1 } = this._zoom?.domain ?? {};
    return axis === 'x' ? [x0, x1] : [y0, y1];
  }

  private get _axis(): IStepAxis | undefined {
    return this._view.stepAxis();
  }

  private _onLink(_: RunLink, change: LinkChange): void {
    if (change === 'position' ? this._view.followsPosition : change !== 'pointed') {
      // Who chose shows the band; others show less until it is gone. Pictures of one step go to the pin.
      this._refresh();
    }
    this._draw();
  }

  private _draw(): void {
    const pinned = this._view.pinned?.();
    const chosen = pinned ? this._boxes(pinned, 'jp-MegalensPinned') : [];
    const nodes = [...this._band(), ...this._pin(), ...chosen, ...this._foreign()];
    if (nodes.length > 0 || this._shell.linked.firstChild !== null) {
      this._shell.linked.replaceChildren(...nodes);
    }
  }

  /** The chosen steps, drawn where they were chosen. */
  private _band(): Element[] {
    const { _chart: chart, _draft: draft, _zoom: zoom } = this;
    if (draft?.loop && chart && zoom) {
      const { y0, y1 } = zoom.domain;
      // As it is taken: the end is joined to the beginning.
      const points = [...draft.loop, ...draft.loop.slice(0, 1)].map(
        ([x, y]) => [x, (y - y0) / (y1 - y0)] as const
      );
      return drawTrace({ color: HAND, points }, chart, zoom, this._shell.stage);
    }
    const filter = this._link?.filter;
    const axis = this._axis;
    const steps = filter?.by === this && axis ? { x: axis.spanOf(filter.steps), y: null } : null;
    const brushed = this._draft ?? steps;
    return brushed ? this._boxes({ facet: null, ...brushed }, 'jp-MegalensBand') : [];
  }

  private _pin(): HTMLElement[] {
    const span = this.pinned === null ? undefined : this._axis?.spanOf([this.pinned, this.pinned]);
    if (span === undefined) {
      return [];
    }
    const middle = (span[0] + span[1]) / 2;
    return this._boxes({ facet: null, x: [middle, middle], y: null }, 'jp-MegalensPin');
  }

  private _foreign(): Element[] {
    const pointed = this._link?.pointed;
    const [chart, zoom] = [this._chart, this._zoom];
    if (!pointed || pointed.by === this || !chart || !zoom) {
      return [];
    }
    // Over the chart, not in it: the pointer moves 60 times a second, and a chart takes longer than a frame.
    const { marks, traces = [] } = this._view.marksOf(pointed.at);
    return [
      ...traces.flatMap(trace => drawTrace(trace, chart, zoom, this._shell.stage)),
      ...marks.flatMap(mark =>
        this._boxes(mark, mark.y || mark.x[0] < mark.x[1] ? LINKED : 'jp-MegalensLinked jp-mod-rule')
      )
    ];
  }

  private _boxes(mark: IMark, name: string): HTMLElement[] {
    const [chart, zoom] = [this._chart, this._zoom];
    return chart && zoom ? markNodes(mark, chart, zoom, this._shell.stage, name) : [];
  }

  private readonly _brush: Brush | null;
  private readonly _box: Brush;
  private readonly _magnifier: Brush;
  private _chart: Chart | null = null;
  private _zoom: Zoom | null = null;
  private _draft: IBrushed | null = null;
  private _anchor: number | null = null;
  /** Where a box that Shift and the arrows choose began. */
  private _corner: IMark | null = null;
  isDisposed = false;
}

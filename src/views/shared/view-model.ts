import type { IPlace, IPlotFrame, IZoomOptions, Row, Zoom } from '../../charts';
import type { ViewOptions } from '../../protocol/views.generated';
import type { IPointed, ITextPosition } from '../../store/run-link';
import type { IRunSource, SourceChange } from '../../store/source';
import type { IViewRuns } from '../view';
import type { IMark, IMoved, Loaded } from './content';
import type { Control } from './control';
import type { ILinkedMarks, IStepAxis } from './links';
import type { IPainting } from './painting';
import type { IStateActions } from './states';
import type { ITip } from './table';
import type { Translate } from './translate';

/** What positions in a picture mean; see `Pictured`. */
export interface IPictured {
  probe(point: IPlace): IMark | null;
  tipOf(mark: IMark): ITip | null;
  move(key: string): IMoved | null;
  pointedBy?(mark: IMark): IPointed;
  marksOf?(at: IPointed): ILinkedMarks;
  stepAxis?(): IStepAxis | undefined;
}

/** What answers for the positions of a picture. By default its picture does. */
export abstract class Pictured implements IPictured {
  /**
   * The picture that answers for its positions; null where the view does, or there is nothing to point at.
   */
  protected get drawn(): IPictured | null {
    return null;
  }

  /** What is under the pointer. */
  probe(point: IPlace): IMark | null {
    return this.drawn?.probe(point) ?? null;
  }

  /** What to say of a mark as the data are now; null when it is gone. */
  tipOf(mark: IMark): ITip | null {
    return this.drawn?.tipOf(mark) ?? null;
  }

  /** Answer a key; null when it means nothing here. */
  move(key: string): IMoved | null {
    return this.drawn?.move(key) ?? null;
  }

  /** What one of the view's own marks points at. */
  pointedBy(mark: IMark): IPointed {
    return this.drawn?.pointedBy?.(mark) ?? { step: null, layer: null };
  }

  /** What the view shows of something that another view points at. */
  marksOf(at: IPointed): ILinkedMarks {
    return this.drawn?.marksOf?.(at) ?? { marks: [] };
  }

  /** How steps lie on the x axis; undefined where it has none. */
  stepAxis(): IStepAxis | undefined {
    return this.drawn?.stepAxis?.();
  }
}

/** Lines that the host paints itself, because as rows of a chart they would be too slow to pan. */
export interface ILinePainter {
  readonly painted: number;
  /** Whether what was painted last is of another size than a plot: it would be blurred. */
  isStretchedIn(frame: IPlotFrame): boolean;
  /** Return the rows of the dataset `pictures`; null where the page has no canvas. */
  paint(painting: IPainting): Row[] | null;
}

/**
 * What a view knows of where it is shown: the mounted part of a page, or a still picture without any page.
 * Everything that needs a page is behind it.
 */
export interface IViewEnvironment<O extends object = ViewOptions> {
  readonly t: Translate;
  /** All options, as they are now. */
  readonly options: Readonly<Required<O>>;
  /** Pixels that the whole picture may take. */
  readonly width: number;
  /** Pixels of the first plot; null while nothing is drawn. */
  readonly frame: IPlotFrame | null;
  /** What is shown of the picture; null while nothing is drawn. */
  readonly zoom: Pick<Zoom, 'domain' | 'isDragging' | 'isHome' | 'isZoomed' | 'reveal'> | null;
  readonly isDark: boolean;
  /** Whether times are written in UTC: a picture that is passed on reads the same to everybody. */
  readonly isUtc: boolean;
  /** Null where lines are rows of the chart. */
  readonly painter: ILinePainter | null;
  readonly actions: IStateActions;
  /** Other runs; null where there is one only. */
  readonly runs: IViewRuns | null;
  /** The steps to draw: those asked for, and of these those chosen in another view. Null is all. */
  within(steps: [number, number] | null): [number, number] | null;
  /** The step that is pinned in the views of the run; null while none is. */
  readonly pinned: number | null;
  /**
   * The position of a generated text that is pinned in the views of the run; null while none is. A view that
   * reads it sets `followsPosition`; `positionShown` weighs it against the view's own option.
   */
  readonly pinnedPosition: ITextPosition | null;
  /** Pin a position in all views of the run; null unpins. */
  pinPosition(at: ITextPosition | null): void;
  /** Change options, as a person does by the toolbar. */
  choose(options: Partial<O>): void;
  /** Read and draw again, now or with the next picture. */
  refresh(now?: boolean): void;
  place(): void;
  /** Have a screen reader say something. */
  say(text: string): void;
  /** Put the cursor somewhere, in sight, and say what is there. */
  goTo(mark: IMark | null): void;
  /** Say what is waited for, while there is no picture. */
  waits(sentence: string): void;
  /** What is drawn now is not all: the rest is drawn when it has come. */
  follow(rest: Promise<unknown>): void;
  /** Say that something went wrong, with the way to try it again. */
  fail(reason: unknown): void;
}

/**
 * One picture of a run without the page around it: what it reads, draws, says and answers. It runs in the
 * page, in Node and in a bare JavaScript engine alike. Unless a view says otherwise there is nothing to set
 * and nothing to point at.
 */
export abstract class ViewModel<O extends object = ViewOptions> extends Pictured {
  constructor(
    protected readonly source: IRunSource,
    protected readonly env: IViewEnvironment<O>
  ) {
    super();
  }

  /** Which axes zoom. */
  readonly zooms: IZoomOptions = { axes: 'x', least: 4 };

  /**
   * Whether the picture depends on the pinned position of a generated text: it is then drawn again when
   * another is, and a click pins what `pointedBy` returns.
   */
  get followsPosition(): boolean {
    return false;
  }

  /** What is looked at, in words, whether or not there is something of it to draw. */
  abstract readonly subject: string;

  abstract load(signal: AbortSignal): Promise<Loaded>;

  /** Whether news from the run changes the picture. */
  abstract concerns(change: SourceChange): boolean;

  /**
   * Whether a person waits for what the run sends, such as a text that was asked for: then it is drawn twice
   * as often.
   */
  get isAwaited(): boolean {
    return false;
  }

  /** Whether a picture drawn anew shows the same axes, so that it may be drawn under a hand that drags. */
  get drawsWhileDragged(): boolean {
    return false;
  }

  /** The toolbar's controls as things are now. */
  controls(): Control[] {
    return [];
  }

  /** What is marked until something else is chosen; absent where nothing can be. */
  pinned?(): IMark | null;
  /** What belongs to a mark and is outlined with it, such as the row of a cell; absent where nothing does. */
  bandOf?(mark: IMark): readonly IMark[];
  /** A mark was clicked at; absent where that means nothing. */
  clicked?(mark: IMark): void;
  /**
   * Whether a box is chosen, not what a loop surrounds: also by Shift and the arrows, and by a drag while
   * nothing is zoomed.
   */
  readonly choosesBoxes?: true;
  /**
   * A loop, or a box, was drawn with Shift held, to choose what lies in it; absent where that means nothing.
   * Null lets go of a chosen box.
   */
  boxed?(box: IMark | null): void;
  /**
   * Where the summary's sentence points, for a cursor that goes there; null where it points at nothing,
   * absent where it never does.
   */
  insight?(): IMark | null;
  /**
   * What is shown was changed by zooming or moving; for pictures that do not hold all that can be zoomed
   * into.
   */
  zoomed?(): void;
  /** The view is shown no more: lets go of what it shares. */
  dispose?(): void;

  protected get options(): Readonly<Required<O>> {
    return this.env.options;
  }

  protected get t(): Translate {
    return this.env.t;
  }

  protected get actions(): IStateActions {
    return this.env.actions;
  }

  protected choose(options: Partial<O>): void {
    this.env.choose(options);
  }
}

/** One of several pictures under one toolbar: of what one reader reads, and with the options of the whole. */
export abstract class PartModel<O extends object, R> extends ViewModel {
  constructor(
    source: IRunSource,
    env: IViewEnvironment,
    protected readonly reader: R
  ) {
    super(source, env);
  }

  protected get chosen(): Readonly<Required<O>> {
    return this.options as object as Readonly<Required<O>>;
  }

  protected pick(options: Partial<O>): void {
    this.choose(options as Partial<ViewOptions>);
  }
}

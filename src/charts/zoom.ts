import type { IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';
import type { IPlace, IPlotFrame } from './pixels';

export interface IPointerFollower {
  move(event: PointerEvent): void;
  /** The pointer went up; after `released`. */
  up?(): void;
  /** Nothing is followed any more, whatever ended it. */
  released?(): void;
}

/**
 * Follow a pointer over the whole page until it goes up or is taken away.
 * @returns Ends it before.
 */
export function followPointer(follower: IPointerFollower): () => void {
  const move = (event: PointerEvent): void => follower.move(event);
  const release = (): void => {
    document.removeEventListener('pointermove', move);
    document.removeEventListener('pointerup', up);
    document.removeEventListener('pointercancel', release);
    follower.released?.();
  };
  const up = (): void => {
    release();
    follower.up?.();
  };
  document.addEventListener('pointermove', move);
  document.addEventListener('pointerup', up);
  document.addEventListener('pointercancel', release);
  return release;
}

/** An interval of an axis in its own unit, low to high. */
export type Interval = readonly [number, number];

/** What can be zoomed, such as a `Chart`. */
export interface IZoomable {
  readonly node: HTMLElement;
  set(params: Readonly<Record<string, unknown>>): void;
  locate(event: MouseEvent): IPlace | null;
}

/** Which axes zoom, and how few units may fill a plot. */
export interface IZoomOptions {
  axes: 'x' | 'xy';
  /** Least units of x (and y) that fill a plot; Infinity where nothing is zoomed. */
  least: number;
}

/** A pointer that moves less far does not drag. */
export const DRAG_PIXELS = 3;
/** A cell that is smaller is not seen when a cursor goes there, pixels. */
const LEAST_PIXELS = 3;

/**
 * Zoom and pan of a chart: wheel with Ctrl (or while the chart has the focus), drag, double click to go back.
 * Until someone zooms, the domain follows the data; after that it stays where it was put.
 */
export class Zoom implements IDisposable {
  constructor(
    private readonly _chart: IZoomable,
    private readonly _options: IZoomOptions
  ) {
    const { node } = _chart;
    node.addEventListener('wheel', this._onWheel, { passive: false });
    node.addEventListener('pointerdown', this._onDown);
    node.addEventListener('dblclick', this._onDouble);
  }

  get isZoomed(): boolean {
    return this._x !== null || this._home !== null;
  }

  /** Whether what is shown until someone zooms is shown. */
  get isHome(): boolean {
    return this._x === null && !this._leftHome;
  }

  get domain(): { x0: number; x1: number; y0: number; y1: number } {
    return this._params();
  }

  /**
   * Say what the data cover. Returns the params to draw with.
   *
   * @param home - What is shown of x until someone zooms; all when absent.
   */
  extent(x: Interval, y: Interval, home?: Interval): { x0: number; x1: number; y0: number; y1: number } {
    this._fullX = x;
    this._fullY = y;
    this._homeX = home ? clamp(home, x) : null;
    this._x &&= clamp(this._x, x);
    this._y &&= clamp(this._y, y);
    return this._params();
  }

  /** Zoom by a factor (below 1 is closer) about a point given in parts of the plot, 0 to 1. */
  by(factor: number, across = 0.5, down = 0.5): void {
    const scaled = (now: Interval, full: Interval, at: number): Interval => {
      const most = full[1] - full[0];
      const span = Math.max(Math.min((now[1] - now[0]) * factor, most), Math.min(this._options.least, most));
      const start = now[0] + at * (now[1] - now[0] - span);
      return clamp([start, start + span], full);
    };
    this._put(
      scaled(this._nowX, this._fullX, across),
      this._options.axes === 'xy' ? scaled(this._y ?? this._fullY, this._fullY, down) : this._fullY
    );
  }

  /** Move by parts of what is shown. */
  pan(across: number, down: number): void {
    if (!this.isZoomed) {
      return;
    }
    const moved = (now: Interval, full: Interval, by: number): Interval => {
      const shift = by * (now[1] - now[0]);
      return clamp([now[0] + shift, now[1] + shift], full);
    };
    const [x, y] = [this._nowX, this._y ?? this._fullY];
    this._put(moved(x, this._fullX, across), this._options.axes === 'xy' ? moved(y, this._fullY, down) : y);
  }

  /** Move as little as needed so that a cell (its centre given) is shown. */
  reveal(x: number, y: number): void {
    if (!this.isZoomed) {
      return;
    }
    const shown = (now: Interval, full: Interval, at: number): Interval => {
      const shift = Math.min(0, at - 0.5 - now[0]) + Math.max(0, at + 0.5 - now[1]);
      return clamp([now[0] + shift, now[1] + shift], full);
    };
    this._put(shown(this._nowX, this._fullX, x), shown(this._y ?? this._fullY, this._fullY, y));
  }

  /**
   * Show a mark: what is shown moves there, and comes closer where a cell would be too small to see.
   *
   * @param pixels Size of the plot that it lies in; null where that is not known.
   */
  show(
    mark: { readonly x: Interval; readonly y: Interval | null },
    pixels: Pick<IPlotFrame, 'width' | 'height'> | null
  ): void {
    const shown = (now: Interval, full: Interval, cell: Interval, size: number): Interval => {
      const [span, width] = [now[1] - now[0], cell[1] - cell[0]];
      const next = width > 0 && (width / span) * size < LEAST_PIXELS ? (width * size) / LEAST_PIXELS : span;
      const middle = (cell[0] + cell[1]) / 2;
      return next === span && cell[0] >= now[0] && cell[1] <= now[1]
        ? now
        : clamp([middle - next / 2, middle + next / 2], full);
    };
    const [x, y] = [this._nowX, this._y ?? this._fullY];
    this._put(
      shown(x, this._fullX, mark.x, pixels?.width ?? Infinity),
      mark.y && this._options.axes === 'xy' ? shown(y, this._fullY, mark.y, pixels?.height ?? Infinity) : y
    );
  }

  /** Show a stretch of the x axis and no more. */
  to(x: Interval): void {
    const span = Math.max(x[1] - x[0], Math.min(this._options.least, this._fullX[1] - this._fullX[0]));
    const start = (x[0] + x[1] - span) / 2;
    this._put(clamp([start, start + span], this._fullX), this._y ?? this._fullY);
  }

  /** Show again what is shown until someone zooms. */
  reset(): void {
    this._x = null;
    this._y = null;
    this._leftHome = false;
    this._apply();
  }

  dispose(): void {
    if (this.isDisposed) {
      return;
    }
    this.isDisposed = true;
    const { node } = this._chart;
    node.removeEventListener('wheel', this._onWheel);
    node.removeEventListener('pointerdown', this._onDown);
    node.removeEventListener('dblclick', this._onDouble);
    this._release?.();
    Signal.clearData(this);
  }

  private _put(x: Interval, y: Interval): void {
    const isAll = covers(x, this._fullX) && covers(y, this._fullY);
    const home = this._homeX;
    const isHome = home !== null && covers(y, this._fullY) && covers(x, home) && covers(home, x);
    this._x = isAll || isHome ? null : x;
    this._y = isAll ? null : y;
    // Who zooms out as far as it goes sees all, and goes on to.
    this._leftHome = isAll;
    this._apply();
  }

  private _apply(): void {
    const { y0, y1, ...x } = this._params();
    this._chart.set(this._options.axes === 'xy' ? { ...x, y0, y1 } : x);
    this.changed.emit();
  }

  private _params(): { x0: number; x1: number; y0: number; y1: number } {
    const [x, y] = [this._nowX, this._y ?? this._fullY];
    return { x0: x[0], x1: x[1], y0: y[0], y1: y[1] };
  }

  private _onWheel = (event: WheelEvent): void => {
    const { node } = this._chart;
    const focused = node.querySelector(':focus') !== null || node.closest(':focus') !== null;
    const point = this._chart.locate(event);
    // Where nothing can come closer, the wheel moves the page.
    const zooms = this._options.least < Infinity && (event.ctrlKey || event.metaKey || focused);
    if (point === null || !zooms) {
      return;
    }
    event.preventDefault();
    const { x0, x1, y0, y1 } = this._params();
    // A wheel notch is about 100 pixels, a touch pad sends many small ones.
    const factor = Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300)));
    this.by(
      factor,
      (point.x - x0) / (x1 - x0),
      this._options.axes === 'xy' ? (point.y - y0) / (y1 - y0) : 0.5
    );
  };

  private _onDown = (event: PointerEvent): void => {
    const point = this._chart.locate(event);
    if (point === null || event.button !== 0 || !this.isZoomed) {
      return;
    }
    let [lastX, lastY] = [event.clientX, event.clientY];
    const start = { x: lastX, y: lastY };
    this._release = followPointer({
      move: next => {
        if (!this.isDragging && Math.hypot(next.clientX - start.x, next.clientY - start.y) < DRAG_PIXELS) {
          return;
        }
        this.isDragging = true;
        this.pan((lastX - next.clientX) / point.frame.width, (lastY - next.clientY) / point.frame.height);
        [lastX, lastY] = [next.clientX, next.clientY];
      },
      released: () => {
        this.isDragging = false;
        this._release = null;
      }
    });
  };

  private _onDouble = (): void => this.reset();

  private get _home(): Interval | null {
    return this._leftHome ? null : this._homeX;
  }

  private get _nowX(): Interval {
    return this._x ?? this._home ?? this._fullX;
  }

  private _homeX: Interval | null = null;
  private _leftHome = false;
  private _fullX: Interval = [0, 1];
  private _fullY: Interval = [0, 1];
  private _x: Interval | null = null;
  private _y: Interval | null = null;
  /** Whether a drag is going on: updates should wait. */
  isDragging = false;
  private _release: (() => void) | null = null;
  isDisposed = false;
  /** Emitted after the domain changed by the user. */
  readonly changed = new Signal<this, void>(this);
}

/** Move an interval into another one, cut to its length where it is longer. */
function clamp(interval: Interval, full: Interval): Interval {
  const span = Math.min(interval[1] - interval[0], full[1] - full[0]);
  const start = Math.min(Math.max(interval[0], full[0]), full[1] - span);
  return [start, start + span];
}

const covers = (interval: Interval, full: Interval): boolean =>
  interval[0] <= full[0] + 1e-9 && interval[1] >= full[1] - 1e-9;

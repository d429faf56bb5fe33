import { DRAG_PIXELS } from '../../charts/zoom';
import type { IDisposable } from '@lumino/disposable';
import { followPointer, type IPlace } from '../../charts';
import type { IMark, Loop } from '../shared/content';
import type { Span } from '../shared/links';

export interface IBrushHost {
  /** Whether a drag that begins so is one of its own. */
  takes(event: PointerEvent): boolean;
  /** Whether it draws a loop, freehand; a box when absent. */
  isLoop?(event: PointerEvent): boolean;
  /** The element that takes the focus and the pointer. */
  readonly stage: HTMLElement;
  /** What lies under the pointer, or null outside every plot or where nothing is drawn. */
  locate(event: PointerEvent): IPlace | null;
  /** What is shown of the axes now; `y` is null where a whole column is chosen. */
  shown(): IBrushed;
  /** What is under the hand while it moves; null when it was let go of. */
  draft(brushed: IBrushed | null): void;
  chosen(brushed: IBrushed): void;
}

/** A stretch of the x axis, and of the y axis where a box or a loop is drawn. */
export type IBrushed = Pick<IMark, 'loop' | 'x' | 'y'>;

/**
 * Choosing a span of the x axis, a box or what lies in a loop, by dragging. It listens before the chart's own
 * gestures do, so that zoom and pan never see the drag, and before JupyterLab, for which Shift and the mouse
 * mean a range of cells.
 */
export class Brush implements IDisposable {
  constructor(private readonly _host: IBrushHost) {
    _host.stage.addEventListener('pointerdown', this._onDown, true);
  }

  get isDragging(): boolean {
    return this._release !== null;
  }

  /** Let go without choosing. */
  cancel(): void {
    this._release?.();
  }

  dispose(): void {
    this.isDisposed = true;
    this._release?.();
    this._host.stage.removeEventListener('pointerdown', this._onDown, true);
  }

  private _onDown = (event: PointerEvent): void => {
    const host = this._host;
    const point = event.button === 0 && host.takes(event) ? host.locate(event) : null;
    if (point === null) {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
    host.stage.focus({ preventScroll: true });
    const shown = host.shown();
    const { width, height } = point.frame;
    const loop: [number, number][] | null = host.isLoop?.(event) ? [[point.x, point.y]] : null;
    let brushed: IBrushed | null = null;
    this._release?.();
    this._release = followPointer({
      move: next => {
        const by = [next.clientX - event.clientX, next.clientY - event.clientY] as const;
        const far = shown.y === null ? Math.abs(by[0]) : Math.hypot(...by);
        if (brushed === null && far < DRAG_PIXELS) {
          return;
        }
        const [x, y] = [
          moved(point.x, by[0] / width, shown.x),
          shown.y && moved(point.y, by[1] / height, shown.y)
        ];
        if (loop && y !== null) {
          loop.push([x, y]);
          brushed = { x: around(loop, 0), y: around(loop, 1), loop: [...loop] };
        } else {
          brushed = { x: ordered(point.x, x), y: y === null ? null : ordered(point.y, y) };
        }
        host.draft(brushed);
      },
      up: () => {
        if (brushed !== null) {
          host.chosen(brushed);
        }
      },
      released: () => {
        this._release = null;
        host.draft(null);
      }
    });
  };

  private _release: (() => void) | null = null;
  isDisposed = false;
}

/** Where the hand is, within what is shown; `by` is a part of it. */
function moved(from: number, by: number, [least, most]: Span): number {
  return Math.min(most, Math.max(least, from + by * (most - least)));
}

const ordered = (from: number, to: number): Span => [Math.min(from, to), Math.max(from, to)];

/** What a loop takes of an axis. */
const around = (loop: Loop, axis: 0 | 1): Span =>
  loop.reduce<Span>(
    ([least, most], { [axis]: at }) => [Math.min(least, at), Math.max(most, at)],
    [Infinity, -Infinity]
  );

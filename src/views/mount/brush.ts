import type { IDisposable } from '@lumino/disposable';
import { followPointer, type IPlace } from '../../charts';
import type { IMark } from '../shared/content';
import type { Span } from '../shared/links';

/** What a brush needs of its view. */
export interface IBrushHost {
  /** Whether a drag that begins so is one of its own. */
  takes(event: PointerEvent): boolean;
  /** The element that takes the focus and the pointer. */
  readonly stage: HTMLElement;
  /** What lies under the pointer, or null outside every plot or where nothing is drawn. */
  locate(event: PointerEvent): IPlace | null;
  /** What is shown of the axes now; `y` is null where a whole column is chosen. */
  shown(): IBrushed;
  /** What is under the hand while it moves; null when it was let go of. */
  draft(brushed: IBrushed | null): void;
  /** What was chosen. */
  chosen(brushed: IBrushed): void;
}

/** A stretch of the x axis, and of the y axis where a box is drawn. */
export type IBrushed = Pick<IMark, 'x' | 'y'>;

const DRAG_PIXELS = 3;

/**
 * Choosing a span of the x axis, or a box, by dragging. It listens before the chart's own gestures do, so that zoom and pan never see the
 * drag, and before JupyterLab, for which Shift and the mouse mean a range of cells.
 */
export class Brush implements IDisposable {
  constructor(private readonly _host: IBrushHost) {
    _host.stage.addEventListener('pointerdown', this._onDown, true);
  }

  /** Whether a drag is going on. */
  get isDragging(): boolean {
    return this._release !== null;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  /** Let go without choosing. */
  cancel(): void {
    this._release?.();
  }

  dispose(): void {
    this._isDisposed = true;
    this._release?.();
    this._host.stage.removeEventListener('pointerdown', this._onDown, true);
  }

  private _onDown = (event: PointerEvent): void => {
    const host = this._host;
    const place = event.button === 0 && host.takes(event) ? host.locate(event) : null;
    if (place === null) {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
    host.stage.focus({ preventScroll: true });
    const shown = host.shown();
    const { width, height } = place.frame;
    let brushed: IBrushed | null = null;
    this._release?.();
    this._release = followPointer({
      move: next => {
        const by = [next.clientX - event.clientX, next.clientY - event.clientY] as const;
        const far = shown.y === null ? Math.abs(by[0]) : Math.hypot(...by);
        if (brushed === null && far < DRAG_PIXELS) {
          return;
        }
        brushed = {
          x: stretched(place.x, by[0] / width, shown.x),
          y: shown.y && stretched(place.y, by[1] / height, shown.y)
        };
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
  private _isDisposed = false;
}

/** From a place to where the hand is, within what is shown; `by` is a part of it. */
function stretched(from: number, by: number, [least, most]: Span): Span {
  const end = Math.min(most, Math.max(least, from + by * (most - least)));
  return [Math.min(from, end), Math.max(from, end)];
}

import type { IDisposable } from '@lumino/disposable';
import { followPointer, type IPlace } from '../../charts';
import type { Span } from '../shared/links';

/** What a brush needs of its view. */
export interface IBrushHost {
  /** Whether a drag that begins so is one of its own. */
  takes(event: PointerEvent): boolean;
  /** The element that takes the focus and the pointer. */
  readonly stage: HTMLElement;
  /** What lies under the pointer, or null outside every plot or where nothing is drawn. */
  locate(event: PointerEvent): IPlace | null;
  /** What is shown of the x axis now. */
  shown(): Span;
  /** The span under the hand while it moves; null when it was let go of. */
  draft(span: Span | null): void;
  /** The span that was chosen. */
  chosen(span: Span): void;
}

const DRAG_PIXELS = 3;

/**
 * Choosing a span of the x axis by dragging. It listens before the chart's own gestures do, so that zoom and pan never see the
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
    const [least, most] = host.shown();
    const unit = (most - least) / place.frame.width;
    let span: Span | null = null;
    this._release?.();
    this._release = followPointer({
      move: next => {
        const by = next.clientX - event.clientX;
        if (span === null && Math.abs(by) < DRAG_PIXELS) {
          return;
        }
        const end = Math.min(most, Math.max(least, place.x + by * unit));
        span = [Math.min(place.x, end), Math.max(place.x, end)];
        host.draft(span);
      },
      up: () => {
        if (span !== null) {
          host.chosen(span);
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

import type { IPlotFrame, Row } from '../../charts';
import type { IPainting } from '../shared/painting';
import type { ILinePainter } from '../shared/view-model';
import { paintLines } from './paint-lines';

/** How much wider than the plot the painting is on either side, in widths of the plot: so far a hand pans without a new painting. */
const MARGIN = 1;

/**
 * The lines of one view, painted once for each look: as a picture of the chart they move with its axes, so that panning costs the same for
 * one line and for hundreds.
 */
export class LinePainter implements ILinePainter {
  /** Counts the paintings. */
  get painted(): number {
    return this._painted;
  }

  /** Whether what was painted last is of another size than a plot: it would be blurred. */
  isStretchedIn({ width, height }: IPlotFrame): boolean {
    const { painting } = this._last ?? {};
    return painting !== undefined && (painting.width !== width || painting.height !== height);
  }

  /** Return the rows of the dataset `pictures`; null where the page has no canvas. */
  paint(painting: IPainting): Row[] | null {
    const { shown, full, y } = painting;
    if (!this._fits(painting)) {
      const canvas = (this._canvas ??= document.createElement('canvas'));
      if (canvas.getContext('2d') === null) {
        return null;
      }
      const width = shown[1] - shown[0];
      const x: [number, number] = [
        Math.max(full[0], shown[0] - MARGIN * width),
        Math.min(full[1], shown[1] + MARGIN * width)
      ];
      const across = (painting.width * (x[1] - x[0])) / width;
      const density = Math.min(2, globalThis.devicePixelRatio || 1);
      paintLines(
        canvas,
        { x, y, scale: painting.scale, width: across, height: painting.height, density },
        painting.lines,
        painting.lines.map((_, at) => ({
          color: painting.colors[at] ?? '#000',
          dash: painting.dashes[at] ?? []
        }))
      );
      this._painted += 1;
      this._last = { painting, x };
    }
    const [x, x2] = this._last?.x ?? full;
    return [{ image: this._canvas, url: null, x, x2, y: y[1], y2: y[0] }];
  }

  /** Whether the last painting still serves. */
  private _fits(next: IPainting): boolean {
    const { painting, x } = this._last ?? {};
    if (painting === undefined || x === undefined) {
      return false;
    }
    const [before, now] = [painting.shown[1] - painting.shown[0], next.shown[1] - next.shown[0]];
    // By identity, not by value: lines that were read again are other ones, and comparing their points would cost as much as painting.
    const same =
      painting.lines === next.lines &&
      painting.colors === next.colors &&
      painting.scale === next.scale &&
      painting.width === next.width &&
      painting.height === next.height &&
      painting.y.join() === next.y.join();
    return same && Math.abs(before - now) < 1e-6 * now && x[0] <= next.shown[0] && x[1] >= next.shown[1];
  }

  private _canvas: HTMLCanvasElement | null = null;
  private _last: { readonly painting: IPainting; readonly x: readonly [number, number] } | null = null;
  private _painted = 0;
}

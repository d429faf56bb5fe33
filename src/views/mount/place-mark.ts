import type { Chart, IPlotFrame, Zoom } from '../../charts';
import type { IMark } from '../shared/content';
import { own } from '../../protocol/own';

/** A rectangle in pixels of the stage. */
export interface IBox {
  left: number;
  top: number;
  width: number;
  height: number;
}

const hold = (part: number): number => Math.min(1, Math.max(0, part));

/** Return a plot's rectangle in pixels of the stage. */
export function frameBox(frame: IPlotFrame, chart: Chart, stage: HTMLElement): IBox {
  const [origin, base] = [chart.origin(), stage.getBoundingClientRect()];
  return {
    left: origin.left - base.left + frame.left,
    top: origin.top - base.top + frame.top,
    width: frame.width,
    height: frame.height
  };
}

/** Return the plots that a mark lies in: the facet's, or all of them where it names none. */
export function framesOf(mark: IMark, chart: Chart): IPlotFrame[] {
  const { facet } = mark;
  return chart.frames().filter(each => facet === null || own(each.facet, facet[0]) === facet[1]);
}

/** Return a mark's rectangle within a plot, or null when it is zoomed out of sight. */
export function markBox(
  mark: IMark,
  frame: IPlotFrame,
  chart: Chart,
  zoom: Zoom,
  stage: HTMLElement
): IBox | null {
  const { x0, x1, y0, y1 } = zoom.domain;
  const [left, right] = [(mark.x[0] - x0) / (x1 - x0), (mark.x[1] - x0) / (x1 - x0)];
  const [top, bottom] = mark.y ? [(mark.y[0] - y0) / (y1 - y0), (mark.y[1] - y0) / (y1 - y0)] : [0, 1];
  if (right < 0 || left > 1 || bottom < 0 || top > 1) {
    return null;
  }
  const box = frameBox(frame, chart, stage);
  return {
    left: box.left + hold(left) * box.width,
    top: box.top + hold(top) * box.height,
    width: (hold(right) - hold(left)) * box.width,
    height: (hold(bottom) - hold(top)) * box.height
  };
}

/** Put an element where a rectangle is. */
export function putAt(node: HTMLElement, box: IBox): void {
  for (const side of ['left', 'top', 'width', 'height'] as const) {
    node.style[side] = `${box[side]}px`;
  }
}

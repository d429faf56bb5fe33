import type { Chart, Zoom } from '../charts';
import type { IMark } from './content';
import { element } from './dom';
import type { Shell } from './shell';
import { Tooltip, type ITip } from './tooltip';

/** The mark over a picture with its tooltip. It keeps its place in the data while they change, scroll and zoom. */
export class Cursor {
  /**
   * @param shell The view's elements.
   * @param tipOf What to say of a mark as the data are now; null when it is gone.
   */
  constructor(
    private readonly _shell: Shell,
    private readonly _tipOf: (mark: IMark) => ITip | null
  ) {
    this._tooltip = new Tooltip(_shell.stage);
  }

  /** Mark something, or nothing. `place` draws it. */
  mark: IMark | null = null;

  clear(): void {
    this.mark = null;
    this._shell.overlay.replaceChildren();
    this._tooltip.hide();
  }

  /** Put mark and tooltip where their data are drawn now. */
  place(chart: Chart | null, zoom: Zoom | null): void {
    const tip = this.mark && this._tipOf(this.mark);
    if (!this.mark || !tip || !chart || !zoom) {
      this.clear();
      return;
    }
    const box = this._boxOf(this.mark, chart, zoom);
    if (box === null) {
      // Zoomed out of sight: it comes back with its data.
      this._shell.overlay.replaceChildren();
      this._tooltip.hide();
      return;
    }
    const outline = element('div', { class: `jp-MegalensCursor jp-mod-${this.mark.y ? 'cell' : 'rule'}` });
    for (const side of ['left', 'top', 'width', 'height'] as const) {
      outline.style[side] = `${box[side]}px`;
    }
    this._shell.overlay.replaceChildren(outline);
    this._tooltip.show(tip, box.left + box.width, box.top + box.height / 2);
  }

  /** Return the mark's rectangle in pixels of the stage, or null when it is out of sight. */
  private _boxOf(
    mark: IMark,
    chart: Chart,
    zoom: Zoom
  ): { left: number; top: number; width: number; height: number } | null {
    const { facet } = mark;
    const frame = chart.frames().find(each => facet === null || each.facet[facet[0]] === facet[1]);
    if (!frame) {
      return null;
    }
    const { x0, x1, y0, y1 } = zoom.domain;
    const [left, right] = [(mark.x[0] - x0) / (x1 - x0), (mark.x[1] - x0) / (x1 - x0)];
    const [top, bottom] = mark.y ? [(mark.y[0] - y0) / (y1 - y0), (mark.y[1] - y0) / (y1 - y0)] : [0, 1];
    if (right < 0 || left > 1 || bottom < 0 || top > 1) {
      return null;
    }
    const hold = (part: number): number => Math.min(1, Math.max(0, part));
    const origin = chart.origin();
    const stage = this._shell.stage.getBoundingClientRect();
    return {
      left: origin.left - stage.left + frame.left + hold(left) * frame.width,
      top: origin.top - stage.top + frame.top + hold(top) * frame.height,
      width: (hold(right) - hold(left)) * frame.width,
      height: (hold(bottom) - hold(top)) * frame.height
    };
  }

  private readonly _tooltip: Tooltip;
}

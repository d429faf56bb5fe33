import type { Chart, Zoom } from '../../charts';
import type { IMark } from '../shared/content';
import type { ITip } from '../shared/tip';
import { element } from './dom';
import { framesOf, markBox, putAt, type IBox } from './place-mark';
import type { Shell } from './shell';
import { Tooltip } from './tooltip';

/** The mark over a picture with its tooltip. It keeps its place in the data while they change, scroll and zoom. */
export class Cursor {
  /**
   * @param shell The view's elements.
   * @param tipOf What to say of a mark as the data are now; null when it is gone.
   * @param bandOf What belongs to it and is outlined with it.
   */
  constructor(
    private readonly _shell: Shell,
    private readonly _tipOf: (mark: IMark) => ITip | null,
    private readonly _bandOf: (mark: IMark) => IMark | null = () => null
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
    const [frame] = framesOf(this.mark, chart);
    const box = frame ? markBox(this.mark, frame, chart, zoom, this._shell.stage) : null;
    if (box === null) {
      // Zoomed out of sight: it comes back with its data.
      this._shell.overlay.replaceChildren();
      this._tooltip.hide();
      return;
    }
    const outline = element('div', { class: `jp-MegalensCursor jp-mod-${this.mark.y ? 'cell' : 'rule'}` });
    putAt(outline, box);
    const band = frame && this._bandOf(this.mark);
    const around = band ? markBox(band, frame, chart, zoom, this._shell.stage) : null;
    this._shell.overlay.replaceChildren(...(around ? [bandNode(around)] : []), outline);
    this._tooltip.show(tip, box.left + box.width, box.top + box.height / 2);
  }

  private readonly _tooltip: Tooltip;
}

function bandNode(box: IBox): HTMLElement {
  const node = element('div', { class: 'jp-MegalensLinked jp-mod-box' });
  putAt(node, box);
  return node;
}

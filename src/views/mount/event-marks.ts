import type { Chart, Row, Zoom } from '../../charts';
import { element } from './dom';
import { frameBox, putAt } from './place-mark';

/** Pixels of a mark's place under the axis that answer to the pointer. */
const SIZE = 12;

/** The places of a chart's event marks: each says what happened, and tells where. The marks themselves the chart draws. */
export class EventMarks {
  /**
   * @param stage The element that holds the chart.
   * @param point Tells the run's other views of a step; null that nothing is pointed at.
   */
  constructor(
    private readonly _stage: HTMLElement,
    private readonly _point: (step: number | null) => void
  ) {}

  readonly node = element('div', { class: 'jp-MegalensEvents' });

  /** Put them where the marks are drawn now; without a chart there are none. */
  place(chart: Chart | null, zoom: Zoom | null): void {
    const rows = chart?.recipe.datasets['events'] ?? [];
    const frames = chart?.frames() ?? [];
    const frame = frames[frames.length - 1];
    if (!chart || !zoom || !frame || rows.length === 0) {
      this._show([]);
      return;
    }
    const { x0, x1 } = zoom.domain;
    const box = frameBox(frame, chart, this._stage);
    const across = (x: unknown): number => ((Number(x) - x0) / (x1 - x0)) * box.width;
    this._show(
      rows.flatMap(row => {
        const [from, to] = [Math.max(0, across(row['x'])), Math.min(box.width, across(row['x2']))];
        if (to < 0 || from > box.width) {
          return [];
        }
        const mark = this._markOf(row);
        putAt(mark, {
          left: box.left + from - SIZE / 2,
          top: box.top + box.height,
          width: to - from + SIZE,
          height: SIZE
        });
        return [mark];
      })
    );
  }

  private _markOf(row: Row): HTMLElement {
    const text = String(row['text']);
    const kept = this._kept.get(row);
    if (kept) {
      return kept;
    }
    const mark = element('span', { class: 'jp-MegalensEvent', role: 'img', title: text, 'aria-label': text });
    mark.addEventListener('pointerenter', () => this._point(Number(row['step'])));
    mark.addEventListener('pointerleave', () => this._point(null));
    this._kept.set(row, mark);
    return mark;
  }

  private _show(marks: readonly HTMLElement[]): void {
    const same =
      marks.length === this.node.children.length &&
      marks.every((mark, at) => mark === this.node.children[at]);
    if (!same) {
      this.node.replaceChildren(...marks);
    }
  }

  private readonly _kept = new WeakMap<Row, HTMLElement>();
}

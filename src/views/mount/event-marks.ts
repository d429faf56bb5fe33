import type { IDisposable } from '@lumino/disposable';
import type { Chart, Row, Zoom } from '../../charts';
import { formatInteger } from '../../charts/format';
import { isOver, type IRunSource } from '../../store/source';
import { perturbText } from '../shared/perturb-text';
import type { Translate } from '../shared/translate';
import { element } from './dom';
import { frameBox, putAt } from './cursor';

/** Says over a view that the training is perturbed now, until it is not: what is drawn then is not the model's own doing. */
export class ArmedChip implements IDisposable {
  constructor(
    private readonly _source: IRunSource,
    private readonly _t: Translate
  ) {
    _source.changed.connect(this._tell, this);
    this._tell();
  }

  readonly node = element('p', { class: 'jp-MegalensArmedChip', role: 'status', hidden: '' });

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    this._isDisposed = true;
    this._source.changed.disconnect(this._tell, this);
    this.node.remove();
  }

  private _tell(): void {
    const words = armedWords(this._source, this._t);
    // A reader of the screen is told of changes only.
    if (words !== this.node.textContent) {
      this.node.textContent = words;
      this.node.hidden = words === '';
    }
  }

  private _isDisposed = false;
}

/** What is armed now and how long, or nothing: it also ends by itself, and with the training. */
function armedWords(source: IRunSource, t: Translate): string {
  const armed = source.hello?.config.perturb ?? null;
  const ended = armed?.until !== undefined && (source.status?.step ?? 0) > armed.until;
  if (armed === null || ended || isOver(source)) {
    return '';
  }
  const what = perturbText(armed, source.hello?.sites ?? []);
  return armed.until === undefined
    ? t('Perturbed: %1', what)
    : t('Perturbed until step %1: %2', formatInteger(armed.until), what);
}

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

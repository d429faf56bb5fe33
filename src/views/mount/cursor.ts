import type { IDisposable } from '@lumino/disposable';
import type { Chart, IPlotFrame, Zoom, Row } from '../../charts';
import { formatInteger } from '../../charts/format';
import { own } from '../../protocol/records';
import { isOver, type IRunSource } from '../../store/source';
import type { IMark } from '../shared/content';
import { perturbText } from '../shared/perturb-text';
import { middleCut, shortNames } from '../shared/short-name';
import type { ITip } from '../shared/table';
import type { Translate } from '../shared/translate';
import { element, frameBox, type IBox } from './dom';
import type { Shell } from './shell';

const hold = (part: number): number => Math.min(1, Math.max(0, part));

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

/** What is lit because something else is pointed at, as a box. */
export const LINKED = 'jp-MegalensLinked jp-mod-box';

/** Boxes of a mark; one without a facet is drawn in every plot. */
export function markNodes(
  mark: IMark,
  chart: Chart,
  zoom: Zoom,
  stage: HTMLElement,
  name: string
): HTMLElement[] {
  return framesOf(mark, chart).flatMap(frame => {
    const box = markBox(mark, frame, chart, zoom, stage);
    if (box === null) {
      return [];
    }
    const node = element('div', { class: name });
    putAt(node, box);
    node.style.opacity = String(mark.strength ?? 1);
    return [node];
  });
}

export function putAt(node: HTMLElement, box: IBox): void {
  for (const side of ['left', 'top', 'width', 'height'] as const) {
    node.style[side] = `${box[side]}px`;
  }
}

/** About how wide a character is, and what stands beside the text, pixels. */
const [LETTER, MARGINS] = [6.5, 44];
/** Widest that a box is where the page has no layout, pixels. */
const MOST_PIXELS = 640;
/** Fewest and most characters of a name. */
const [LEAST_LETTERS, MOST_LETTERS] = [10, 60];

/** A small box near the pointer that never covers what it describes and takes no pointer events. */
class Tooltip {
  constructor(private readonly _stage: HTMLElement) {
    this.node = element('div', { class: 'jp-MegalensTooltip', 'aria-hidden': 'true', hidden: '' });
    _stage.append(this.node);
  }

  readonly node: HTMLElement;

  /** Show it near a point given in pixels from the stage's upper left corner. */
  show(tip: ITip, left: number, top: number): void {
    const { columns } = tip;
    const letters = lettersOf(tip, this._stage.clientWidth);
    const names = shortNames(
      tip.lines.map(line => line.name),
      letters,
      middleCut
    );
    const cells = tip.lines.flatMap((line, at) => {
      const name = element('span', { class: 'jp-MegalensTooltip-name' }, names[at] ?? '');
      if (line.color) {
        const swatch = element('span', { class: 'jp-MegalensSwatch' });
        swatch.style.background = line.color;
        name.prepend(swatch);
      }
      const beside = columns ? (line.beside ?? ['', '']) : [];
      return [name, ...[line.value, ...beside].map(text => element('span', {}, text))];
    });
    const heads = columns ? ['', '', ...columns].map(text => element('span', {}, text)) : [];
    this.node.replaceChildren(
      element('div', { class: 'jp-MegalensTooltip-heading' }, tip.heading),
      element(
        'div',
        { class: `jp-MegalensTooltip-lines${columns ? ' jp-mod-pinned' : ''}` },
        ...heads,
        ...cells
      )
    );
    this.node.style.maxWidth = `${this._stage.clientWidth || MOST_PIXELS}px`;
    this.node.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.node;
    const right = left + 14 + width <= this._stage.clientWidth;
    const x = right ? left + 14 : Math.max(0, left - 14 - width);
    const y = Math.min(Math.max(0, top - height / 2), Math.max(0, this._stage.clientHeight - height));
    this.node.style.transform = `translate(${Math.round(x)}px, ${Math.round(y)}px)`;
  }

  hide(): void {
    this.node.hidden = true;
  }
}

/** How many characters of a name fit before the values into a box of some pixels. */
function lettersOf({ columns, lines }: ITip, width: number): number {
  const widest = (of: readonly (string | undefined)[]): number =>
    Math.max(0, ...of.map(text => text?.length ?? 0)) + 2;
  const wide = [
    lines.map(({ value }) => value),
    ...(columns ?? []).map((head, at) => [head, ...lines.map(({ beside }) => beside?.[at])])
  ].reduce((sum, column) => sum + widest(column), 0);
  const letters = Math.floor(((width || MOST_PIXELS) - MARGINS) / LETTER) - wide;
  return Math.min(MOST_LETTERS, Math.max(LEAST_LETTERS, letters));
}

/** The mark over a picture with its tooltip. It stays with its data while they change, scroll and zoom. */
export class Cursor {
  /**
   * @param shell The view's elements.
   * @param tipOf What to say of a mark as the data are now; null when it is gone.
   * @param bandOf What belongs to it and is outlined with it.
   */
  constructor(
    private readonly _shell: Shell,
    private readonly _tipOf: (mark: IMark) => ITip | null,
    private readonly _bandOf: (mark: IMark) => readonly IMark[] = () => []
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
    const bands = this._bandOf(this.mark).flatMap(band =>
      markNodes(band, chart, zoom, this._shell.stage, LINKED)
    );
    this._shell.overlay.replaceChildren(...bands, outline);
    this._tooltip.show(tip, box.left + box.width, box.top + box.height / 2);
  }

  private readonly _tooltip: Tooltip;
}

/**
 * Says over a view that the training is perturbed now, until it is not: what is drawn then is not the model's
 * own doing.
 */
export class ArmedChip implements IDisposable {
  constructor(
    private readonly _source: IRunSource,
    private readonly _t: Translate
  ) {
    _source.changed.connect(this._tell, this);
    this._tell();
  }

  readonly node = element('p', { class: 'jp-MegalensArmedChip', role: 'status', hidden: '' });

  dispose(): void {
    this.isDisposed = true;
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

  isDisposed = false;
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

/** Pixels under the axis, around a mark, that answer to the pointer. */
const SIZE = 12;

/**
 * The event marks of a chart, which the chart draws: each has the words of its event, and tells other views
 * its step.
 */
export class EventMarks {
  /** @param point Points the run's other views to a step; null when nothing is pointed at. */
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
    const known = this._marks.get(row);
    if (known) {
      return known;
    }
    const mark = element('span', { class: 'jp-MegalensEvent', role: 'img', title: text, 'aria-label': text });
    mark.addEventListener('pointerenter', () => this._point(Number(row['step'])));
    mark.addEventListener('pointerleave', () => this._point(null));
    this._marks.set(row, mark);
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

  private readonly _marks = new WeakMap<Row, HTMLElement>();
}

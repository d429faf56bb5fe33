import { type Chart, followPointer, type Zoom } from '../../charts';
import { own } from '../../protocol/records';
import type { IMinimap } from '../shared/content';
import type { Span } from '../shared/links';
import { element, frameBox } from './dom';

/** Pixels of the picture of it, and of an edge of the window that answers to the pointer. */
const HEIGHT = 24;
const EDGE = 6;
/** Parts of the window that a key moves it by. */
const BY = 0.2;
/** The same to either end. */
const FAR = 1e5;

/** The whole x axis in small above a picture, with the part of it that is shown as a window to drag. */
export class Minimap {
  constructor() {
    this._window.addEventListener('keydown', event => this._onKey(event));
    this.node.addEventListener('pointerdown', event => this._onDown(event));
  }

  private readonly _canvas = element('canvas', { 'aria-hidden': 'true' });
  private readonly _window = element('div', {
    class: 'jp-MegalensMinimap-window',
    role: 'slider',
    tabindex: '0'
  });
  readonly node = element('div', { class: 'jp-MegalensMinimap', hidden: '' }, this._canvas, this._window);

  show(map: IMinimap | null): void {
    this.node.hidden = map === null;
    if (map && map.layers !== this._map?.layers) {
      paint(this._canvas, map);
    }
    this._map = map;
  }

  /** Put it over the plot, and its window where what is shown lies. */
  place(chart: Chart | null, zoom: Zoom | null, stage: HTMLElement): void {
    this._zoom = zoom;
    const [map, frame] = [this._map, chart?.frames()[0]];
    if (!map || !chart || !zoom || !frame) {
      return;
    }
    const { left, width } = frameBox(frame, chart, stage);
    this.node.style.marginLeft = `${left}px`;
    this.node.style.width = `${width}px`;
    const { x0, x1 } = zoom.domain;
    this._draw([x0, x1]);
  }

  private _draw([from, to]: Span): void {
    const map = this._map;
    if (!map) {
      return;
    }
    const [start, end] = map.extent;
    const part = (x: number): number => (100 * (x - start)) / (end - start);
    const read = this._canvas.style;
    [read.left, read.width] = [`${part(map.read[0])}%`, `${part(map.read[1]) - part(map.read[0])}%`];
    const { style } = this._window;
    [style.left, style.width] = [`${part(from)}%`, `${part(to) - part(from)}%`];
    for (const [name, value] of Object.entries({
      label: map.label,
      valuemin: String(start),
      valuemax: String(end),
      valuenow: String(from),
      valuetext: map.words([from, to])
    })) {
      this._window.setAttribute(`aria-${name}`, value);
    }
  }

  private _onKey(event: KeyboardEvent): void {
    const zoom = this._zoom;
    const acts: Readonly<Record<string, () => void>> = {
      ArrowLeft: () => zoom?.pan(-BY, 0),
      ArrowRight: () => zoom?.pan(BY, 0),
      PageUp: () => zoom?.pan(-1, 0),
      PageDown: () => zoom?.pan(1, 0),
      ArrowUp: () => zoom?.by(1 - BY),
      ArrowDown: () => zoom?.by(1 / (1 - BY)),
      Home: () => zoom?.pan(-FAR, 0),
      End: () => zoom?.pan(FAR, 0)
    };
    const act = own(acts, event.key);
    if (act && !event.ctrlKey && !event.metaKey && !event.altKey) {
      act();
      event.preventDefault();
      event.stopPropagation();
    }
  }

  private _onDown(event: PointerEvent): void {
    const [map, zoom] = [this._map, this._zoom];
    if (!map || !zoom || event.button !== 0) {
      return;
    }
    event.preventDefault();
    this._window.focus({ preventScroll: true });
    const box = this.node.getBoundingClientRect();
    const [start, end] = map.extent;
    const at = ({ clientX }: PointerEvent): number =>
      start + ((end - start) * (clientX - box.left)) / Math.max(1, box.width);
    const hold = (x: number): number => Math.min(end, Math.max(start, x));
    const from = at(event);
    const { x0, x1 } = zoom.domain;
    const near = (EDGE * (end - start)) / Math.max(1, box.width);
    const [isLeft, isRight] = [Math.abs(from - x0) < near, Math.abs(from - x1) < near];
    const isInside = zoom.isZoomed && from > x0 && from < x1;
    // What lies outside the window, or all where nothing is zoomed, begins another one.
    const fixed = zoom.isZoomed && isLeft ? x1 : zoom.isZoomed && isRight ? x0 : isInside ? null : from;
    let next: Span | null = null;
    followPointer({
      move: moved => {
        const x = at(moved);
        const by = Math.max(start - x0, Math.min(end - x1, x - from));
        next = fixed === null ? [x0 + by, x1 + by] : [Math.min(fixed, hold(x)), Math.max(fixed, hold(x))];
        this._draw(next);
      },
      up: () => {
        const half = (x1 - x0) / 2;
        this._choose(next ?? (isInside || !zoom.isZoomed ? [x0, x1] : [from - half, from + half]));
      }
    });
  }

  private _choose(span: Span): void {
    const { read, beyond } = this._map ?? {};
    const middle = (span[0] + span[1]) / 2;
    if (read && beyond && (middle < read[0] || middle > read[1])) {
      beyond(span);
    } else {
      this._zoom?.to(span);
    }
  }

  private _map: IMinimap | null = null;
  private _zoom: Zoom | null = null;
}

/** Paint the parts of each column above one another, from the bottom. */
function paint(canvas: HTMLCanvasElement, { layers }: IMinimap): void {
  canvas.width = Math.max(1, layers[0]?.parts.length ?? 1);
  canvas.height = HEIGHT;
  const context = canvas.getContext?.('2d');
  const used = new Float64Array(canvas.width);
  for (const { color, parts } of context ? layers : []) {
    context!.fillStyle = color;
    parts.forEach((part, column) => {
      const height = Math.min(1 - (used[column] ?? 0), part) * HEIGHT;
      used[column] = (used[column] ?? 0) + height / HEIGHT;
      context!.fillRect(column, HEIGHT * (1 - (used[column] ?? 0)), 1, height);
    });
  }
}

import type { Chart, Zoom, IPlotFrame, Row } from '../../charts';
import { type IPaintedLine, type IPainting, type ITrace, heightOf, SPARSE } from '../shared/painting';
import { indexBefore } from '../shared/scale';
import type { ILinePainter } from '../shared/view-model';
import { frameBox } from './dom';

const SVG = 'http://www.w3.org/2000/svg';

/** Draw a line over the first plot, cut to what is shown: the chart itself stays as it is. */
export function drawTrace(trace: ITrace, chart: Chart, zoom: Zoom, stage: HTMLElement): Element[] {
  const [frame] = chart.frames();
  if (!frame) {
    return [];
  }
  const box = frameBox(frame, chart, stage);
  const { x0, x1 } = zoom.domain;
  let pen = 'M';
  const path = trace.points.map(([x, part]) => {
    if (!Number.isFinite(part)) {
      pen = 'M';
      return '';
    }
    const left = ((x - x0) / (x1 - x0)) * box.width;
    const piece = `${pen}${left.toFixed(1)} ${(part * box.height).toFixed(1)}`;
    pen = 'L';
    return piece;
  });
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('class', 'jp-MegalensLinked jp-mod-line');
  svg.setAttribute(
    'style',
    `left:${box.left}px;top:${box.top}px;width:${box.width}px;height:${box.height}px`
  );
  for (const name of ['halo', 'line']) {
    const line = document.createElementNS(SVG, 'path');
    line.setAttribute('class', `jp-mod-${name}`);
    line.setAttribute('d', path.join(''));
    if (name === 'line') {
      line.setAttribute('stroke', trace.color);
    }
    svg.append(line);
  }
  return [svg];
}

interface ICanvasArea {
  /** What the area covers of the axes. */
  readonly x: readonly [number, number];
  readonly y: readonly [number, number];
  /** As the template's `yScale`. */
  readonly scale: string;
  /** Pixels of the page, and how many of the canvas one of them has. */
  readonly width: number;
  readonly height: number;
  readonly density: number;
}

interface IStroke {
  readonly color: string;
  readonly dash: readonly number[];
}

/**
 * Paint lines on a canvas. Of the points that share a column of pixels the least and the greatest are drawn,
 * which looks the same.
 */
function paintLines(
  canvas: HTMLCanvasElement,
  area: ICanvasArea,
  lines: readonly IPaintedLine[],
  strokes: readonly IStroke[]
): void {
  const { width, height, density } = area;
  canvas.width = Math.max(1, Math.round(width * density));
  canvas.height = Math.max(1, Math.round(height * density));
  const context = canvas.getContext('2d');
  if (context === null) {
    return;
  }
  context.scale(density, density);
  context.lineJoin = 'round';
  context.lineWidth = lines.length > 30 ? 1 : 1.5;
  lines.forEach((line, at) => {
    const { color = '#000', dash = [] } = strokes[at] ?? {};
    context.strokeStyle = color;
    context.fillStyle = color;
    const isSolid = dash.length === 0 || dash[1] === 0;
    context.setLineDash(isSolid ? [] : [...dash]);
    context.globalAlpha = line.isFaint ? 0.25 : 1;
    context.lineCap = isSolid && !line.isFaint ? 'round' : 'butt';
    paintLine(context, area, line.x, line.value);
  });
}

function paintLine(
  context: CanvasRenderingContext2D,
  area: ICanvasArea,
  x: Float64Array,
  value: Float64Array
): void {
  const { width, height, y, scale } = area;
  const [from, to] = area.x;
  const unit = width / (to - from);
  const linear = scale === 'linear';
  const [low, span] = [y[0], y[1] - y[0]];
  const heightAt = (each: number): number =>
    linear ? height - ((each - low) / span) * height : heightOf(each, y, scale) * height;
  // One point more on either side, so that a line runs on to the edge.
  const start = Math.max(0, indexBefore(x, from));
  const end = Math.min(x.length - 1, indexBefore(x, to) + 1);
  const pen = new Pen(context);
  for (let at = start; at <= end; at += 1) {
    const each = value[at] as number;
    // NaN and both infinities give NaN here: one cheap test, for it is made of every point at every painting.
    if (each - each !== 0) {
      pen.lift();
    } else {
      pen.to(((x[at] as number) - from) * unit, heightAt(each));
    }
  }
  pen.lift();
  context.stroke();
  if (end - start < SPARSE) {
    for (let at = start; at <= end; at += 1) {
      const each = value[at] as number;
      if (Number.isFinite(each)) {
        context.fillRect(((x[at] as number) - from) * unit - 2, heightAt(each) - 2, 4, 4);
      }
    }
  }
}

/**
 * Points of a line that are stroked at once. A canvas without a graphics card takes eight times as long for a
 * path of hundreds of steep segments as for the same in short ones.
 */
const AT_ONCE = 8;

/** Draws points that come by ascending x, a column of pixels at a time. */
class Pen {
  constructor(private readonly _context: CanvasRenderingContext2D) {
    _context.beginPath();
    // The pattern of a dashed line begins anew with each path.
    this._most = _context.getLineDash().length > 0 ? Infinity : AT_ONCE;
  }

  to(x: number, y: number): void {
    const column = Math.floor(x);
    // Within one column of pixels only the extremes can be seen.
    if (column === this._column) {
      this._last = y;
      this._least = y < this._least ? y : this._least;
      this._greatest = y > this._greatest ? y : this._greatest;
      this._count += 1;
      return;
    }
    this._flush();
    this._column = column;
    this._x = x;
    this._first = this._last = this._least = this._greatest = y;
    this._count = 1;
  }

  /** The line breaks here. A point between two breaks is a dot. */
  lift(): void {
    this._flush();
    if (this._drawn === 1) {
      this._context.fillRect(this._x - 1.5, this._last - 1.5, 3, 3);
    }
    this._drawn = 0;
    this._column = NaN;
    this._count = 0;
    this._bar = null;
  }

  private _flush(): void {
    if (this._count === 0) {
      return;
    }
    const context = this._context;
    const bar = this._count > 1 ? ([this._least, this._greatest] as const) : null;
    const [low, high] = this._bar ?? [NaN, NaN];
    if (this._drawn === 0) {
      context.moveTo(this._x, this._first);
    } else if (!(bar && bar[0] <= high && bar[1] >= low)) {
      // Two bars side by side that overlap need nothing between them.
      context.lineTo(this._x, this._first);
      this._points += 1;
    }
    if (bar) {
      // A path of many strokes up and down takes a canvas ten times as long as the pixel columns it covers.
      context.fillRect(this._column, bar[0] - 0.5, 1, bar[1] - bar[0] + 1);
      context.moveTo(this._x, this._last);
    } else if (this._points >= this._most) {
      context.stroke();
      context.beginPath();
      context.moveTo(this._x, this._last);
      this._points = 0;
    }
    this._bar = bar;
    this._drawn += this._count;
    this._count = 0;
  }

  private readonly _most: number;
  private _points = 0;
  private _column = NaN;
  private _x = 0;
  private _first = 0;
  private _last = 0;
  private _least = 0;
  private _greatest = 0;
  private _count = 0;
  private _drawn = 0;
  /** What the column before covers, where it has several points. */
  private _bar: readonly [number, number] | null = null;
}

/**
 * How much wider than the plot the painting is on either side, in widths of the plot: so far a hand pans
 * without a new painting.
 */
const MARGIN = 1;

/**
 * The lines of one view, painted once for each look: as a picture of the chart they move with its axes, so
 * that panning costs the same for one line and for hundreds.
 */
export class LinePainter implements ILinePainter {
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
      this.painted += 1;
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
    // By identity: comparing the points of lines that were read anew would cost as much as painting.
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
  painted = 0;
}

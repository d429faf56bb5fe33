import type { Chart, Zoom } from '../../charts';
import { frameBox } from '../mount/place-mark';

const SVG = 'http://www.w3.org/2000/svg';

/** A line to draw over one plot. */
export interface ITrace {
  readonly color: string;
  /** Place on the x axis, and part of the plot's height from its top; NaN breaks the line. */
  readonly points: readonly (readonly [number, number])[];
}

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

/**
 * Return where a value lies in a plot, as part of its height from the top.
 *
 * @param domain Values at the bottom and at the top.
 * @param scale As the template's `yScale`: Vega's `symlog` has a constant of 1.
 */
export function heightOf(value: number, domain: readonly [number, number], scale: string): number {
  const spread = (each: number): number =>
    scale === 'log'
      ? Math.log(each)
      : scale === 'symlog'
        ? Math.sign(each) * Math.log1p(Math.abs(each))
        : each;
  const [low, high] = domain.map(spread);
  return low === undefined || high === undefined ? NaN : 1 - (spread(value) - low) / (high - low);
}

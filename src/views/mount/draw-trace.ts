import type { Chart, Zoom } from '../../charts';
import type { ITrace } from '../shared/trace';
import { frameBox } from './place-mark';

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

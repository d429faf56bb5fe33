import { fromVega } from './recipe';

/** One plotted rectangle of a chart in pixels from the chart's upper left corner. */
export interface IPlotFrame {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
  /** The facet's fields, such as `layer` or `panel`; empty where the chart has one rectangle only. */
  readonly facet: Readonly<Record<string, unknown>>;
}

/** What frames need of a Vega view. */
export interface ISceneView {
  origin(): number[];
  padding(): unknown;
  scenegraph(): unknown;
  signal(name: string): unknown;
}

interface ISceneItem {
  x?: number;
  y?: number;
  width?: number;
  height?: number;
  datum?: Record<string, unknown>;
  items?: ISceneMark[];
}

interface ISceneMark {
  name?: string;
  marktype?: string;
  items?: ISceneItem[];
}

/** Names that Vega-Lite gives the groups of a unit called `cell`: alone, in a facet and in a concatenation. */
const CELLS = /(^|_)cell(_group)?$/;

function collect(mark: ISceneMark, left: number, top: number, into: IPlotFrame[]): void {
  for (const item of mark.items ?? []) {
    const [x, y] = [left + (item.x ?? 0), top + (item.y ?? 0)];
    if (mark.name !== undefined && CELLS.test(mark.name)) {
      into.push({
        left: x,
        top: y,
        width: item.width ?? 0,
        height: item.height ?? 0,
        facet: fromVega(item.datum ?? {})
      });
      continue;
    }
    for (const child of item.items ?? []) {
      if (child.marktype === 'group') {
        collect(child, x, y, into);
      }
    }
  }
}

/** Return where the cells of a chart are drawn: each facet, or the one plot. */
export function frames(view: ISceneView): IPlotFrame[] {
  const root = (view.scenegraph() as { root: ISceneMark }).root;
  const [x = 0, y = 0] = view.origin();
  // The origin lies inside the padding, which a spec may give as one number.
  const padding = view.padding() as number | { left?: number; top?: number };
  const [left, top] =
    typeof padding === 'number'
      ? [x + padding, y + padding]
      : [x + (padding.left ?? 0), y + (padding.top ?? 0)];
  const found: IPlotFrame[] = [];
  collect(root, left, top, found);
  if (found.length > 0) {
    return found;
  }
  const item = root.items?.[0];
  return [{ left, top, width: item?.width ?? 0, height: item?.height ?? 0, facet: {} }];
}

/** Return the drawn images of a chart, as the scenegraph has them. */
export function images(view: Pick<ISceneView, 'scenegraph'>): object[] {
  const within = (mark: ISceneMark): object[] =>
    mark.marktype === 'image'
      ? (mark.items ?? [])
      : (mark.items ?? []).flatMap(item => (item.items ?? []).flatMap(within));
  return within((view.scenegraph() as { root: ISceneMark }).root);
}

/** A point of a plot in the units of its axes. */
export interface IPlace {
  readonly frame: IPlotFrame;
  readonly x: number;
  /** NaN for charts whose y domain is not one of the params. */
  readonly y: number;
  /** Part of the plot's height from its top. */
  readonly down: number;
}

/** Domain of a chart, read from its params. y grows downwards where the template reverses it. */
export function domains(view: ISceneView): { x: [number, number]; y: [number, number] } {
  const read = (name: string): number => {
    try {
      return Number(view.signal(name));
    } catch {
      return NaN; // The template has no such param.
    }
  };
  return { x: [read('x0'), read('x1')], y: [read('y0'), read('y1')] };
}

/**
 * Return what lies under a pixel, or null outside every plot.
 *
 * @param left Pixels from the chart's left edge.
 * @param top Pixels from the chart's upper edge.
 */
export function locate(view: ISceneView, left: number, top: number): IPlace | null {
  const { x, y } = domains(view);
  for (const frame of frames(view)) {
    const [across, down] = [(left - frame.left) / frame.width, (top - frame.top) / frame.height];
    if (across >= 0 && across <= 1 && down >= 0 && down <= 1) {
      return { frame, x: x[0] + across * (x[1] - x[0]), y: y[0] + down * (y[1] - y[0]), down };
    }
  }
  return null;
}

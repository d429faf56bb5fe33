import {
  type IRecipe,
  Zoom,
  Chart,
  readTheme,
  type IPlotFrame,
  type IPlace,
  type IZoomOptions
} from '../../charts';
import { type IContent, squareExtent } from '../shared/content';
import type { IViewHost } from '../view';
import type { Shell } from './shell';

/** What stands above a view's plot where nothing is unfolded: toolbar, title, a note; pixels. */
const ABOVE = 130;

/**
 * Pixels that a view may take of its frame; 0 where there is none. What stands above the plot beyond the
 * usual, such as unfolded filters, is taken off.
 */
export function spaceIn(frame: Element | undefined, plot: Element): number {
  if (frame === undefined) {
    return 0;
  }
  const above = plot.getBoundingClientRect().top - frame.getBoundingClientRect().top + frame.scrollTop;
  return frame.clientHeight - Math.max(0, above - ABOVE);
}

/** What stands above and below the plots of a view: toolbar, title, axis, caption; pixels. */
const AROUND = 190;
/** What stands between two rows of plots, pixels. */
const BETWEEN = 40;
/** A picture grows in steps, so that dragging a border does not draw it anew all the time. */
const STEP = 20;
/** A single plot gets as low as this in a low frame; rows of plots are scrolled. */
const LEAST = 120;

/**
 * The height of each row of plots that fills a frame.
 *
 * @param usual - Pixels of a row where there is no frame.
 * @param rows - Plots above one another.
 * @param frame - Pixels that the whole view may take; 0 where it has no frame.
 */
export function stretch(usual: number, rows: number, frame: number): number {
  const space = (frame - AROUND - (rows - 1) * BETWEEN) / rows;
  const least = frame > 0 && rows === 1 ? Math.min(usual, LEAST) : usual;
  return Math.max(least, Math.floor(space / STEP) * STEP);
}

/** What the first rows of a table below the picture take, pixels. */
const TABLE = 220;

/**
 * Return what to draw: the part of a picture that is zoomed into, as high as its frame (pixels, 0 without
 * one) asks; null where the view shows no picture.
 */
function fitRecipe(content: IContent, zoom: Zoom | null, frame: number): IRecipe | null {
  const { recipe, body, extent, home, legend, rows = 1 } = content;
  if (recipe === null) {
    return null;
  }
  const domain = Object.entries(zoom?.extent(extent.x, extent.y, home) ?? {});
  const shown = Object.fromEntries(domain.filter(([name]) => Object.hasOwn(recipe.params, name)));
  const height = recipe.height && stretch(recipe.height, rows, body ? frame - TABLE : frame);
  return {
    ...recipe,
    ...(height ? { height } : {}),
    ...(legend ? { unkeyed: true } : {}),
    params: { ...recipe.params, ...shown }
  };
}

export interface IPictureEvents {
  /** Another part of it is shown, by zooming or moving. */
  zoomed(): void;
  /** Axes and marks are where they will stay. */
  placed(): void;
}

/** A view's chart with its zoom; both are there from the first drawing on. */
export class Picture {
  constructor(
    private readonly _shell: Shell,
    private readonly _host: Pick<IViewHost, 'frame' | 'renderer'>,
    private readonly _events: IPictureEvents
  ) {}

  /** Pixels of the first plot; null while nothing is drawn. */
  get frame(): IPlotFrame | null {
    return this.chart?.frames()[0] ?? null;
  }

  /** Width in pixels that the picture may take; 640 where the page has no layout. */
  get width(): number {
    return this._shell.stage.clientWidth || 640;
  }

  get isDark(): boolean {
    return readTheme(this._shell.root).dark;
  }

  locate(event: MouseEvent): IPlace | null {
    return this.chart?.locate(event) ?? null;
  }

  /** Draw what a view has; the first time the chart is made. */
  async draw(content: IContent, zooms: IZoomOptions): Promise<void> {
    const recipe = this._fit(content);
    if (recipe === null) {
      return;
    }
    if (this.chart === null) {
      const chart = await Chart.mount(this._shell.plot, recipe, {
        theme: readTheme(this._shell.root),
        renderer: this._host.renderer ?? 'canvas'
      });
      if (this._isDisposed) {
        chart.dispose();
        return;
      }
      this.chart = chart;
      this.zoom = new Zoom(chart, zooms);
      this.zoom.extent(content.extent.x, content.extent.y, content.home);
      this.zoom.changed.connect(() => {
        void chart.settled().then(() => this._events.placed());
        this._events.zoomed();
      });
    } else {
      await this.chart.apply(recipe);
    }
    await this.chart.resize(this.width);
    const fitting = (this.frame && content.refit?.(this.frame)) ?? (content.isSquare ? content.recipe : null);
    const refit = fitting && this._fit({ ...content, recipe: fitting });
    if (refit) {
      await this.chart.apply(refit);
    }
    this._events.placed();
  }

  /** Draw again in the colours of the page as they are now. */
  restyle(): void {
    void this.chart?.restyle(readTheme(this._shell.root)).then(() => this._events.placed());
  }

  dispose(): void {
    this._isDisposed = true;
    this.zoom?.dispose();
    this.chart?.dispose();
  }

  private _fit(content: IContent): IRecipe | null {
    const { frame } = this;
    const extent = content.isSquare && frame ? squareExtent(content.extent, frame) : content.extent;
    return fitRecipe({ ...content, extent }, this.zoom, spaceIn(this._host.frame, this._shell.plot));
  }

  chart: Chart | null = null;
  zoom: Zoom | null = null;
  private _isDisposed = false;
}

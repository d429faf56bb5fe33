import { type IRecipe, Zoom, Chart, readTheme, type IPlotFrame, type IZoomOptions } from '../../charts';
import { type IContent, squareExtent } from '../shared/content';
import type { IViewHost } from '../view';
import type { Shell } from './shell';

/** What axes take of a picture that is not drawn yet, pixels. */
const AXES = 60;
/** What the first rows of a table below the picture take, pixels. */
const TABLE = 220;
/** A picture grows in steps, so that dragging a border does not draw it anew all the time. */
const STEP = 20;
/** A single plot gets as low as this in a low frame, and one of several as this part of what is usual. */
const [LEAST, LEAST_PART] = [120, 0.65];

/**
 * Pixels of a frame that are left for the plots in it, since words, controls and axes take the others.
 *
 * @param whole What the frame holds, with all its pictures.
 */
export function leftIn(frame: Element, whole: HTMLElement, pictures: readonly Picture[]): number {
  const above = whole.getBoundingClientRect().top - frame.getBoundingClientRect().top + frame.scrollTop;
  const own = pictures.reduce((sum, each) => sum + each.own, 0);
  return Math.max(1, frame.clientHeight - above - (whole.offsetHeight - own));
}

/**
 * The height of each row of plots that fills what is left for it. It stays as it is while that is about full.
 *
 * @param rows - Plots above one another.
 * @param left - Pixels for all of them.
 * @param least - Pixels of a row that are scrolled rather than drawn lower.
 * @param before - Pixels of a row as it is drawn.
 */
export function stretch(rows: number, left: number, least: number, before = 0): number {
  const space = left / rows;
  return before >= least && before <= space && before > space - 2 * STEP
    ? before
    : Math.max(least, Math.floor(space / STEP) * STEP);
}

export interface IRoom {
  /** Pixels for the plots, and those that are usual for all of them. */
  readonly left: number;
  readonly all: number;
}

export interface IPictureEvents {
  /** What is shown now; null while nothing is. */
  content(): IContent | null;
  /** Another part of it is shown, by zooming or moving. */
  zoomed(): void;
  /** Axes and marks are where they will stay. */
  placed(): void;
}

/** A view's chart with its zoom; both are there from the first drawing on. */
export class Picture {
  constructor(
    private readonly _shell: Shell,
    private readonly _host: Pick<IViewHost, 'frame' | 'renderer'> & {
      /** What its frame leaves for all plots in it; absent where it has the frame for itself. */
      readonly room?: (() => IRoom) | undefined;
    },
    private readonly _events: IPictureEvents
  ) {}

  /** Pixels of its plots, one below another, where there is no frame; 0 where it has none. */
  get usual(): number {
    const { recipe, rows = 1 } = this._events.content() ?? {};
    return (recipe?.height ?? 0) * rows;
  }

  /** Pixels of its plots as they are drawn now, and of what of a table need not be seen at once. */
  get own(): number {
    const tops = new Map(this.chart?.frames().map(({ top, height }) => [top, height]));
    const plots = this._isDrawn ? [...tops.values()].reduce((sum, height) => sum + height, 0) : -AXES;
    return this.usual > 0 ? plots + Math.max(0, this._shell.body.offsetHeight - TABLE) : 0;
  }

  /** Whether what is around it now leaves its plots another height than they have. */
  get isUnfit(): boolean {
    return this._isDrawn && this.usual > 0 && this._height() !== this.chart?.recipe.height;
  }

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
    // Only what is drawn says what its axes take.
    const again = content.isSquare || this.isUnfit ? content.recipe : null;
    const fitting = (this.frame && content.refit?.(this.frame)) ?? again;
    const refit = fitting && this._fit({ ...content, recipe: fitting });
    if (refit) {
      await this.chart.apply(refit);
    }
    this._events.placed();
  }

  /** Draw the next picture into a chart of its own: the one that is there does not end its drawing. */
  renew(): void {
    this.zoom?.dispose();
    this.chart?.dispose();
    this.zoom = this.chart = null;
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

  /** What to draw: the part that is zoomed into, as high as the frame asks; null where there is none. */
  private _fit({ recipe, extent, home, isSquare, legend }: IContent): IRecipe | null {
    if (recipe === null) {
      return null;
    }
    const { x, y } = isSquare && this.frame ? squareExtent(extent, this.frame) : extent;
    const domain = Object.entries(this.zoom?.extent(x, y, home) ?? {});
    const shown = Object.fromEntries(domain.filter(([name]) => Object.hasOwn(recipe.params, name)));
    return {
      ...recipe,
      ...(recipe.height ? { height: this._height() } : {}),
      ...(legend ? { unkeyed: true } : {}),
      params: { ...recipe.params, ...shown }
    };
  }

  /** Pixels of a row of its plots: its part of what the frame leaves for all that it holds. */
  private _height(): number {
    const { rows = 1 } = this._events.content() ?? {};
    const { frame, room } = this._host;
    const { usual } = this;
    if (!frame?.clientHeight) {
      return usual / rows;
    }
    const { left, all } = room?.() ?? { left: leftIn(frame, this._shell.root, [this]), all: usual };
    const least = all > usual ? LEAST_PART * usual : rows > 1 ? usual : Math.min(usual, LEAST);
    const before = this._isDrawn ? (this.chart?.recipe.height ?? 0) : 0;
    return stretch(rows, (left * usual) / Math.max(usual, all), least / rows, before);
  }

  private get _isDrawn(): boolean {
    return this.chart !== null && this._shell.plot.offsetHeight > 0;
  }

  chart: Chart | null = null;
  zoom: Zoom | null = null;
  private _isDisposed = false;
}

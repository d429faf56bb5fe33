import {
  Chart,
  readTheme,
  Zoom,
  type IPlotFrame,
  type IPlace,
  type IRecipe,
  type IZoomOptions
} from '../../charts';
import type { IContent } from '../shared/content';
import { squareExtent } from '../shared/square';
import { fitRecipe } from './fit-recipe';
import { roomIn } from './room-in';
import type { Shell } from './shell';
import type { IViewHost } from '../view';

/** What a picture tells. */
export interface IPictureEvents {
  /** Another place of it is shown, by zooming or moving. */
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

  get chart(): Chart | null {
    return this._chart;
  }

  get zoom(): Zoom | null {
    return this._zoom;
  }

  /** Pixels of the first plot; null while nothing is drawn. */
  get frame(): IPlotFrame | null {
    return this._chart?.frames()[0] ?? null;
  }

  /** Width in pixels that the picture may take; 640 where the page has no layout. */
  get width(): number {
    return this._shell.stage.clientWidth || 640;
  }

  /** Whether the page around it is dark. */
  get isDark(): boolean {
    return readTheme(this._shell.root).dark;
  }

  /** What lies under the pointer, as the axes have it. */
  locate(event: MouseEvent): IPlace | null {
    return this._chart?.locate(event) ?? null;
  }

  /** Draw what a view has; the first time the chart is made. */
  async draw(content: IContent, zooms: IZoomOptions): Promise<void> {
    const recipe = this._fit(content);
    if (recipe === null) {
      return;
    }
    if (this._chart === null) {
      const chart = await Chart.mount(this._shell.plot, recipe, {
        theme: readTheme(this._shell.root),
        renderer: this._host.renderer ?? 'canvas'
      });
      if (this._isDisposed) {
        chart.dispose();
        return;
      }
      this._chart = chart;
      this._zoom = new Zoom(chart, zooms);
      this._zoom.extent(content.extent.x, content.extent.y, content.home);
      this._zoom.changed.connect(() => {
        void chart.settled().then(() => this._events.placed());
        this._events.zoomed();
      });
    } else {
      await this._chart.apply(recipe);
    }
    await this._chart.resize(this.width);
    const fitting = (this.frame && content.refit?.(this.frame)) ?? (content.isSquare ? content.recipe : null);
    const again = fitting && this._fit({ ...content, recipe: fitting });
    if (again) {
      await this._chart.apply(again);
    }
    this._events.placed();
  }

  /** Draw again in the colours of the page as they are now. */
  restyle(): void {
    void this._chart?.restyle(readTheme(this._shell.root)).then(() => this._events.placed());
  }

  dispose(): void {
    this._isDisposed = true;
    this._zoom?.dispose();
    this._chart?.dispose();
  }

  private _fit(content: IContent): IRecipe | null {
    const { frame } = this;
    const extent = content.isSquare && frame ? squareExtent(content.extent, frame) : content.extent;
    return fitRecipe({ ...content, extent }, this._zoom, roomIn(this._host.frame, this._shell.plot));
  }

  private _chart: Chart | null = null;
  private _zoom: Zoom | null = null;
  private _isDisposed = false;
}

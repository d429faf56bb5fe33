import { IJupyterWidgetRegistry } from '@jupyter-widgets/base';
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { IMegalensRuns, IMegalensViews } from '../tokens';
import { version } from '../version';
import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { Panel } from '@lumino/widgets';

/** Before ipywidgets' own renderer, so that a cell draws whatever the kernel is doing. */
const RANK = -20;

export const mimePlugin: JupyterFrontEndPlugin<void> = {
  id: 'megalens:mime',
  description: 'Draws Megalens views in notebook outputs.',
  autoStart: true,
  requires: [IRenderMimeRegistry, IMegalensRuns],
  optional: [ITranslator, IMegalensViews],
  activate: (
    app: JupyterFrontEnd,
    registry: IRenderMimeRegistry,
    runs: IMegalensRuns,
    translator: ITranslator | null,
    views: IMegalensViews | null
  ): void => {
    const trans = (translator ?? nullTranslator).load('megalens');
    registry.addFactory(
      {
        safe: true,
        mimeTypes: ['application/vnd.megalens.view+json'],
        createRenderer: options =>
          new LazyRenderer(async () => {
            if (!('expandLeft' in app.shell) && !(await isServed(app))) {
              return registry.createRenderer('text/html');
            }
            const { createMimeFactory, mountWith } = await import('../widgets/mime');
            const open = views ? mountWith((run, other) => void views.open(run, other)) : mountWith();
            return createMimeFactory(runs, trans, open).createRenderer(options);
          })
      },
      RANK
    );
  }
};

/**
 * Whether the server has Megalens. Voila alone, which has cells and no sidebars, answers with a redirect:
 * then the picture is shown that the kernel drew.
 */
const isServed = async ({ serviceManager }: JupyterFrontEnd): Promise<boolean> => {
  const address = `${serviceManager.serverSettings.baseUrl}megalens/api/runs`;
  return (await fetch(address, { redirect: 'manual' })).ok;
};

/** The browser's half of the kernel's widgets, where ipywidgets is installed. */
export const widgetsPlugin: JupyterFrontEndPlugin<void> = {
  id: 'megalens:widgets',
  description: 'Draws the kernel’s Megalens widgets.',
  autoStart: true,
  requires: [IMegalensRuns],
  optional: [IJupyterWidgetRegistry, ITranslator],
  activate: (
    _app: JupyterFrontEnd,
    runs: IMegalensRuns,
    registry: IJupyterWidgetRegistry | null,
    translator: ITranslator | null
  ): void => {
    const trans = (translator ?? nullTranslator).load('megalens');
    registry?.registerWidget({
      name: 'megalens',
      version,
      exports: async () => (await import('../widgets')).createWidgetExports(runs, trans)
    });
  }
};

/** An output renderer whose code is loaded with the first output that needs it. */
export class LazyRenderer extends Panel implements IRenderMime.IRenderer {
  constructor(private readonly load: () => Promise<IRenderMime.IRenderer>) {
    super();
    this.addClass('jp-MegalensOutput');
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    this._renderer ??= this._make();
    const renderer = await this._renderer;
    if (!this.isDisposed) {
      await renderer.renderModel(model);
    }
  }

  private async _make(): Promise<IRenderMime.IRenderer> {
    const renderer = await this.load();
    if (this.isDisposed) {
      renderer.dispose();
    } else {
      this.addWidget(renderer);
    }
    return renderer;
  }

  private _renderer: Promise<IRenderMime.IRenderer> | null = null;
}

import { IJupyterWidgetRegistry } from '@jupyter-widgets/base';
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { IMegalensRuns } from '../tokens';
import { version } from '../version';

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

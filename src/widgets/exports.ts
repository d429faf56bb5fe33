import { DOMWidgetView, type ExportMap } from '@jupyter-widgets/base';
import type { IDisposable } from '@lumino/disposable';
import { keptViewOptions } from '../protocol';
import { bind, bindings } from './bindings';
import { MegalensViewModel } from './model';
import { mountLazily } from './mime';
import { notice, ENGLISH, type IWidgetRuns, type IWords } from './runs';
import { readRunReference } from './view-json';
import { ViewHost, type MountView } from './view-host';

/**
 * Make what `IJupyterWidgetRegistry.registerWidget` takes as `exports` for the module `megalens`.
 *
 * JupyterLab draws a lone view through the renderer of `createMimeFactory`; these classes draw it where a widget holds it (`VBox`, `Output`)
 * and keep the kernel's side in step in both cases.
 *
 * @param runs The page's run service.
 * @param words The user's language; English when absent.
 * @param mount For tests and other hosts; the views of this package when absent.
 */
export function createWidgetExports(
  runs: IWidgetRuns,
  words: IWords = ENGLISH,
  mount: MountView = mountLazily
): ExportMap {
  class MegalensView extends DOMWidgetView {
    override render(): void {
      super.render();
      this.el.classList.add('jp-MegalensCell');
      const model = this.model;
      if (!(model instanceof MegalensViewModel)) {
        return;
      }
      try {
        const host = new ViewHost({
          runs,
          run: readRunReference(model.get('run')),
          ...keptViewOptions(model.get('options')),
          words,
          mount
        });
        this._binding = bind(host, model.model_id, bindings);
        this._host = host;
        this.el.append(host.node);
      } catch (error) {
        const sentence = error instanceof Error ? error.message : String(error);
        this.el.replaceChildren(notice({ sentence, alt: '' }));
      }
    }

    override remove(): ReturnType<DOMWidgetView['remove']> {
      this._binding?.dispose();
      this._host?.dispose();
      return super.remove();
    }

    declare private _host: ViewHost | undefined;
    declare private _binding: IDisposable | undefined;
  }
  return { MegalensViewModel, MegalensView };
}

import { DOMWidgetModel, DOMWidgetView, type ExportMap } from '@jupyter-widgets/base';
import type { IDisposable } from '@lumino/disposable';
import { JSONExt, type ReadonlyPartialJSONValue } from '@lumino/coreutils';
import { Signal } from '@lumino/signaling';
import { keptViewOptions } from '../protocol';
import { bindings, type IBoundModel, bind } from './bindings';
import { mountLazily } from './mime';
import { notice, ENGLISH, type IWidgetRuns, type IWords } from './runs';
import { readRunReference } from './view-json';
import { ViewHost, type MountView } from './view-host';

type Initialize = Parameters<DOMWidgetModel['initialize']>;

/**
 * The browser's half of `megalens.pictures.widgets.View`: the run's name and the options, in step with the
 * kernel.
 */
export class MegalensViewModel extends DOMWidgetModel {
  override defaults(): ReturnType<DOMWidgetModel['defaults']> {
    return {
      ...super.defaults(),
      _model_name: 'MegalensViewModel',
      _model_module: 'megalens',
      _view_name: 'MegalensView',
      _view_module: 'megalens',
      run: {},
      options: {}
    };
  }

  override initialize(attributes: Initialize[0], options: Initialize[1]): void {
    super.initialize(attributes, options);
    this._bound = new BoundModel(this);
    this.on('change:options', () => this._bound.announce());
    bindings.add(this.model_id, this._bound);
  }

  get bound(): IBoundModel {
    return this._bound;
  }

  override close(commClosed = false): Promise<void> {
    bindings.remove(this.model_id, this._bound);
    Signal.clearData(this._bound);
    return super.close(commClosed);
  }

  // Backbone calls initialize before class fields are set, so a field with a value would overwrite it.
  declare private _bound: BoundModel;
}

class BoundModel implements IBoundModel {
  constructor(model: MegalensViewModel) {
    this._model = model;
  }

  readonly optionsChanged: Signal<IBoundModel, void> = new Signal<IBoundModel, void>(this);

  announce(): void {
    this.optionsChanged.emit();
  }

  readOptions(): unknown {
    return this._model.get('options');
  }

  writeOptions(options: unknown): void {
    const value = options as ReadonlyPartialJSONValue;
    if (!JSONExt.deepEqual(this._model.get('options') as ReadonlyPartialJSONValue, value)) {
      this._model.set('options', value);
      this._model.save_changes();
    }
  }

  private readonly _model: MegalensViewModel;
}

/**
 * Make what `IJupyterWidgetRegistry.registerWidget` takes as `exports` for the module `megalens`.
 *
 * JupyterLab draws a lone view through the renderer of `createMimeFactory`; these classes draw it where a
 * widget holds it (`VBox`, `Output`) and keep the kernel's side in step in both cases.
 *
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

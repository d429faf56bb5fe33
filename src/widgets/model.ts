import { DOMWidgetModel } from '@jupyter-widgets/base';
import { JSONExt, type ReadonlyPartialJSONValue } from '@lumino/coreutils';
import { Signal } from '@lumino/signaling';
import { bindings, type IBoundModel } from './bindings';

type Initialize = Parameters<DOMWidgetModel['initialize']>;

/** The browser's half of `megalens.pictures.widgets.View`: the run's name and the options, in step with the kernel. */
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

  /** What a view binds to. */
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

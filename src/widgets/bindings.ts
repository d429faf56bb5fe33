import { DisposableDelegate, type IDisposable } from '@lumino/disposable';
import { Signal, type ISignal } from '@lumino/signaling';
import { ProtocolError, keptViewOptions } from '../protocol';
import type { ViewHost } from './view-host';

/**
 * Keep a cell's view and the kernel's widget in step, for as long as the widget is there: what the person
 * changes in the view goes to the kernel, what the kernel changes is drawn. Without the widget the view goes
 * on by itself.
 *
 * @param modelId The widget's id; null binds to nothing.
 */
export function bind(host: ViewHost, modelId: string | null, models: Bindings): IDisposable {
  let model: IBoundModel | null = null;
  const draw = (): void => {
    if (model) {
      try {
        host.setOptions(keptViewOptions(model.readOptions()).options);
      } catch (error) {
        // What names no view changes none: the cell stays as it is drawn.
        if (!(error instanceof ProtocolError)) {
          throw error;
        }
      }
    }
  };
  const send = (): void => model?.writeOptions(host.options);
  const find = (_: unknown, id: string | null): void => {
    if (modelId === null || id !== modelId) {
      return;
    }
    model?.optionsChanged.disconnect(draw);
    model = models.get(modelId);
    model?.optionsChanged.connect(draw);
    draw();
  };
  host.optionsChanged.connect(send);
  models.changed.connect(find);
  find(null, modelId);
  return new DisposableDelegate(() => {
    host.optionsChanged.disconnect(send);
    models.changed.disconnect(find);
    model?.optionsChanged.disconnect(draw);
    model = null;
  });
}

/** A kernel's widget, as a cell's view binds to it. */
export interface IBoundModel {
  /** The widget's options, as the kernel last sent them. */
  readOptions(): unknown;
  writeOptions(options: unknown): void;
  /** Emitted when the kernel changed the options. */
  readonly optionsChanged: ISignal<IBoundModel, void>;
}

/** Every widget of a living kernel on this page, by its model id. */
class Bindings {
  get(id: string): IBoundModel | null {
    return this._models.get(id) ?? null;
  }

  add(id: string, model: IBoundModel): void {
    this._models.set(id, model);
    this.changed.emit(id);
  }

  /** Forget a model; another one that took the id since stays. */
  remove(id: string, model: IBoundModel): void {
    if (this._models.get(id) === model) {
      this._models.delete(id);
      this.changed.emit(id);
    }
  }

  private readonly _models = new Map<string, IBoundModel>();
  /** Emitted with the model id when a widget comes or goes. */
  readonly changed = new Signal<this, string>(this);
}

/** The page's widgets: filled by the widget models, read by the cells' views. */
export const bindings = new Bindings();

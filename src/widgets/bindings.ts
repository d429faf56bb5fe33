import { Signal, type ISignal } from '@lumino/signaling';

/** A kernel's widget, as a cell's view binds to it. */
export interface IBoundModel {
  /** The widget's options, as the kernel last said. */
  readOptions(): unknown;
  /** Tell the kernel that the person changed the options. */
  writeOptions(options: unknown): void;
  /** Emitted when the kernel changed the options. */
  readonly optionsChanged: ISignal<IBoundModel, void>;
}

/** Every widget of a living kernel on this page, by its model id. */
export class Bindings {
  /** Emitted with the model id when a widget comes or goes. */
  get changed(): ISignal<this, string> {
    return this._changed;
  }

  get(id: string): IBoundModel | null {
    return this._models.get(id) ?? null;
  }

  add(id: string, model: IBoundModel): void {
    this._models.set(id, model);
    this._changed.emit(id);
  }

  /** Forget a model; another one that took the id since stays. */
  remove(id: string, model: IBoundModel): void {
    if (this._models.get(id) === model) {
      this._models.delete(id);
      this._changed.emit(id);
    }
  }

  private readonly _models = new Map<string, IBoundModel>();
  private readonly _changed = new Signal<this, string>(this);
}

/** The page's widgets: filled by the widget models, read by the cells' views. */
export const bindings = new Bindings();

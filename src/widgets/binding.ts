import { DisposableDelegate, type IDisposable } from '@lumino/disposable';
import { ProtocolError, keptViewOptions } from '../protocol';
import type { Bindings, IBoundModel } from './bindings';
import type { ViewHost } from './view-host';

/**
 * Keep a cell's view and the kernel's widget in step, for as long as the widget is there: what the person changes in the view goes to the
 * kernel, what the kernel changes is drawn. Without the widget the view goes on by itself.
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

import type { JupyterFrontEndPlugin } from '@jupyterlab/application';
import { DisposableDelegate, type IDisposable } from '@lumino/disposable';
import { viewInfos } from '../protocol/view-info';
import type { IViewDescriptor, IViewInfo } from '../protocol/view-descriptor';
import { IMegalensViewRegistry } from '../tokens';
import { registerView, type IViewModule } from '../views/other-views';

export class ViewRegistry implements IMegalensViewRegistry {
  register<O extends object>(descriptor: IViewDescriptor, load: () => Promise<IViewModule<O>>): IDisposable {
    const remove = registerView(descriptor, load);
    const offered = this._acts.map(act => act(descriptor));
    this._offered.set(descriptor, offered);
    return new DisposableDelegate(() => {
      remove();
      this._offered.get(descriptor)?.forEach(each => each.dispose());
      this._offered.delete(descriptor);
    });
  }

  follow(act: (info: IViewInfo) => IDisposable): void {
    for (const info of viewInfos()) {
      const offer = act(info);
      this._offered.get(info)?.push(offer);
    }
    this._acts.push(act);
  }

  private readonly _acts: ((info: IViewInfo) => IDisposable)[] = [];
  /** What was made for each view of another package. */
  private readonly _offered = new Map<IViewInfo, IDisposable[]>();
}

export const viewRegistryPlugin: JupyterFrontEndPlugin<IMegalensViewRegistry> = {
  id: 'megalens:view-registry',
  description: 'Knows every Megalens view, those of other packages too.',
  autoStart: true,
  provides: IMegalensViewRegistry,
  activate: (): IMegalensViewRegistry => new ViewRegistry()
};

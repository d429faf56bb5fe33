import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ILauncher } from '@jupyterlab/launcher';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { DisposableDelegate } from '@lumino/disposable';
import { CommandIDs, IMegalensViewRegistry } from '../tokens';
import { IMegalensPanel } from '../panel/shell/panel-token';

/** The launcher's card. */
export const launcherPlugin: JupyterFrontEndPlugin<void> = {
  id: 'megalens:launcher',
  description: 'Adds Megalens to the launcher.',
  autoStart: true,
  // The panel's commands are there once the panel is.
  requires: [ILauncher, IMegalensPanel, IMegalensViewRegistry],
  optional: [ITranslator],
  activate: (
    _app: JupyterFrontEnd,
    launcher: ILauncher,
    _panel: IMegalensPanel,
    registry: IMegalensViewRegistry,
    translator: ITranslator | null
  ): void => {
    const trans = (translator ?? nullTranslator).load('megalens');
    const category = trans.__('Other');
    launcher.add({ command: CommandIDs.openPanel, category, rank: 10, args: { isLauncher: true } });
    registry.follow(({ command, offer }) =>
      offer.includes('launcher')
        ? launcher.add({ command, category, rank: 11 })
        : new DisposableDelegate(() => undefined)
    );
  }
};

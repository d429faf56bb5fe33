import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ILauncher } from '@jupyterlab/launcher';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { CommandIDs, IMegalensPanel } from '../tokens';

/** The launcher's card. */
export const launcherPlugin: JupyterFrontEndPlugin<void> = {
  id: 'megalens:launcher',
  description: 'Adds Megalens to the launcher.',
  autoStart: true,
  // The panel's commands are there once the panel is.
  requires: [ILauncher, IMegalensPanel],
  optional: [ITranslator],
  activate: (
    _app: JupyterFrontEnd,
    launcher: ILauncher,
    _panel: IMegalensPanel,
    translator: ITranslator | null
  ): void => {
    const trans = (translator ?? nullTranslator).load('megalens');
    launcher.add({
      command: CommandIDs.openPanel,
      category: trans.__('Other'),
      rank: 10,
      args: { isLauncher: true }
    });
  }
};

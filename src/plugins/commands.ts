import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { ILauncher } from '@jupyterlab/launcher';
import { DisposableSet, DisposableDelegate } from '@lumino/disposable';
import { addPanelCommands, addViewCommand } from '../panel/shell/commands';
import { addRunMenu } from '../panel/runs/run-menu';
import { CommandIDs, IMegalensViewRegistry, IMegalensViews } from '../tokens';
import { IMegalensPanel } from '../panel/shell/panel-token';

const IN_PALETTE = [
  CommandIDs.openPanel,
  CommandIDs.exportReport,
  CommandIDs.copyCode,
  CommandIDs.applySettings,
  CommandIDs.revertSettings,
  CommandIDs.refreshRuns,
  CommandIDs.connectHub,
  CommandIDs.openStatistics
];

export const commandsPlugin: JupyterFrontEndPlugin<void> = {
  id: 'megalens:commands',
  description: 'Adds the commands of Megalens.',
  autoStart: true,
  requires: [IMegalensPanel, IMegalensViews, IMegalensViewRegistry],
  optional: [ITranslator, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    panel: IMegalensPanel,
    views: IMegalensViews,
    registry: IMegalensViewRegistry,
    translator: ITranslator | null,
    palette: ICommandPalette | null
  ): void => {
    const trans = (translator ?? nullTranslator).load('megalens');
    const category = trans.__('Megalens');
    addPanelCommands(app.commands, panel, trans);
    addRunMenu(app, panel, trans);
    for (const command of IN_PALETTE) {
      palette?.addItem({ command, category });
    }
    registry.follow(info => {
      const made = DisposableSet.from([addViewCommand(app.commands, info, panel, views, trans)]);
      if (palette !== null && info.offer.includes('palette')) {
        made.add(palette.addItem({ command: info.command, category }));
      }
      return made;
    });
  }
};

export const launcherPlugin: JupyterFrontEndPlugin<void> = {
  id: 'megalens:launcher',
  description: 'Adds Megalens to the launcher.',
  autoStart: true,
  // The panel's commands are there once the panel is.
  requires: [IMegalensPanel, IMegalensViewRegistry],
  optional: [ITranslator],
  activate: (
    app: JupyterFrontEnd,
    _panel: IMegalensPanel,
    registry: IMegalensViewRegistry,
    translator: ITranslator | null
  ): void => {
    const trans = (translator ?? nullTranslator).load('megalens');
    const category = trans.__('Other');
    const add = (launcher: ILauncher): void => {
      launcher.add({ command: CommandIDs.openPanel, category, rank: 10, args: { isLauncher: true } });
      registry.follow(({ command, offer }) =>
        offer.includes('launcher')
          ? launcher.add({ command, category, rank: 11 })
          : new DisposableDelegate(() => undefined)
      );
    };
    // Other front ends have no such module: imported above, it would keep all of this out.
    import('@jupyterlab/launcher').then(
      async ({ ILauncher }) => {
        const launcher = await app.resolveOptionalService(ILauncher);
        if (launcher !== null) {
          add(launcher);
        }
      },
      () => undefined
    );
  }
};

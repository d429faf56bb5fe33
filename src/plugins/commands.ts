import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { addPanelCommands } from '../panel/shell/commands';
import { addRunMenu } from '../panel/runs/run-menu';
import { CommandIDs, IMegalensPanel, IMegalensViews } from '../tokens';

const IN_PALETTE = [
  CommandIDs.openPanel,
  CommandIDs.openHeatmap,
  CommandIDs.openTrend,
  CommandIDs.openScalars,
  CommandIDs.openMoments,
  CommandIDs.exportReport,
  CommandIDs.copyCode,
  CommandIDs.applySettings,
  CommandIDs.revertSettings,
  CommandIDs.refreshRuns,
  CommandIDs.connectHub,
  CommandIDs.openStatistics
];

/** Commands, also in the palette, and the context menu of a run. */
export const commandsPlugin: JupyterFrontEndPlugin<void> = {
  id: 'megalens:commands',
  description: 'Adds the commands of Megalens.',
  autoStart: true,
  requires: [IMegalensPanel, IMegalensViews],
  optional: [ITranslator, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    panel: IMegalensPanel,
    views: IMegalensViews,
    translator: ITranslator | null,
    palette: ICommandPalette | null
  ): void => {
    const trans = (translator ?? nullTranslator).load('megalens');
    addPanelCommands(app.commands, panel, views, trans);
    addRunMenu(app, panel, trans);
    for (const command of IN_PALETTE) {
      palette?.addItem({ command, category: trans.__('Megalens') });
    }
  }
};

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator, type TranslationBundle } from '@jupyterlab/translation';
import type { ILauncher } from '@jupyterlab/launcher';
import { DisposableDelegate, DisposableSet } from '@lumino/disposable';
import { addPanelCommands, addViewCommand } from '../panel/shell/commands';
import { CommandIDs, IMegalensViewRegistry, IMegalensViews, type IRunEntry } from '../tokens';
import { IMegalensPanel } from '../panel/shell/panel-token';
import type { PanelModel } from '../panel/shell/panel-model';
import { runCode } from '../panel/shell/panel-code';
import { isDeletable } from '../panel/runs/keep-newest';

const IN_PALETTE = [
  CommandIDs.openPanel,
  CommandIDs.exportReport,
  CommandIDs.copyCode,
  CommandIDs.applySettings,
  CommandIDs.revertSettings,
  CommandIDs.refreshRuns,
  CommandIDs.connectHub,
  CommandIDs.openFiles
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

/** Rows of runs, in the panel's list and in the table. A context menu takes one selector, without a comma. */
const RUN = '[class*="jp-Megalens"] [data-run]';

/** Add the context menu of a run in the list. */
export function addRunMenu(app: JupyterFrontEnd, panel: IMegalensPanel, trans: TranslationBundle): void {
  // The model is there when a run can be clicked; keeping it lets isEnabled answer at once.
  let model: PanelModel | null = null;
  const hit = (): IRunEntry | undefined => {
    void panel.model().then(loaded => (model = loaded));
    const node = app.contextMenuHitTest(candidate => candidate.matches(RUN));
    return model?.runs.entries.find(entry => entry.id === node?.dataset['run']);
  };
  const add = (
    id: string,
    label: string | ((entry: IRunEntry | undefined) => string),
    execute: (model: PanelModel, entry: IRunEntry) => void | Promise<void>,
    enabled: (entry: IRunEntry) => boolean = () => true
  ) => {
    app.commands.addCommand(id, {
      describedBy: { args: { type: 'object', properties: {} } },
      label: () => (typeof label === 'string' ? label : label(hit())),
      isEnabled: () => {
        const entry = hit();
        return entry === undefined || enabled(entry);
      },
      execute: async () => {
        const entry = hit();
        const loaded = await panel.model();
        return entry && execute(loaded, entry);
      }
    });
    app.contextMenu.addItem({ command: id, selector: RUN, rank: rank++ });
  };
  let rank = 0;
  add(CommandIDs.renameRun, trans.__('Rename…'), (loaded, entry) => loaded.actions.rename(entry));
  add(
    CommandIDs.editNotes,
    trans.__('Notes and Tags…'),
    (loaded, entry) => loaded.actions.annotate(entry),
    ({ bytes }) => bytes !== undefined
  );
  add(
    CommandIDs.revealFolder,
    trans.__('Reveal Run Folder in File Browser'),
    (loaded, { folder }) => (folder === null ? undefined : loaded.host.revealFolder(folder)),
    ({ folder }) => folder !== null
  );
  add(
    CommandIDs.copyRunCode,
    entry => (entry === undefined ? trans.__('Copy Code to Open It') : trans.__('Copy “%1”', runCode(entry))),
    (loaded, entry) => loaded.host.copy(runCode(entry))
  );
  add(
    CommandIDs.closeRun,
    trans.__('Stop Watching'),
    loaded => loaded.runs.choose(null),
    entry => entry.id === model?.runs.chosenId
  );
  add(
    CommandIDs.deleteRun,
    trans.__('Delete Recording…'),
    (loaded, entry) => loaded.actions.remove([entry]),
    isDeletable
  );
}

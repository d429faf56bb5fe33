import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { TranslationBundle } from '@jupyterlab/translation';
import { CommandIDs, type IRunEntry } from '../../tokens';
import type { IMegalensPanel } from '../shell/panel-token';
import type { PanelModel } from '../shell/panel-model';
import { runCode } from '../shell/panel-code';
import { isDeletable } from './keep-newest';

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

import {
  ILabShell,
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette, MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { megalensIcon } from '../panel/shell/commands';
import { LazyPanel } from '../panel/shell/lazy-panel';
import { CommandIDs, IMegalensRuns } from '../tokens';
import { IMegalensPanel } from '../panel/shell/panel-token';
import { faultSentence } from '../views/shared/fault-text';

export const runsTablePlugin: JupyterFrontEndPlugin<void> = {
  id: 'megalens:runs-table',
  description: 'Shows every training run in a table: sorted, filtered, compared, annotated, deleted.',
  autoStart: true,
  requires: [IMegalensRuns, IMegalensPanel],
  optional: [ITranslator, ICommandPalette, ILayoutRestorer, ILabShell],
  activate: (
    app: JupyterFrontEnd,
    runs: IMegalensRuns,
    panel: IMegalensPanel,
    translator: ITranslator | null,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null,
    lab: ILabShell | null
  ): void => {
    const trans = (translator ?? nullTranslator).load('megalens');
    const tracker = new WidgetTracker<MainAreaWidget>({ namespace: 'megalens-runs' });
    const make = (): MainAreaWidget => {
      const content = new LazyPanel(
        async () => {
          const [model, { RunsTableWidget }] = await Promise.all([
            panel.model(),
            import('../panel/table/runs-table-widget')
          ]);
          return new RunsTableWidget(model, runs);
        },
        reason => trans.__('The table of runs could not be loaded: %1', faultSentence(reason)),
        { again: trans.__('Try again'), copy: trans.__('Copy details') }
      );
      const widget = new MainAreaWidget({ content });
      widget.id = 'megalens-runs-table';
      widget.title.label = trans.__('Training runs');
      widget.title.icon = megalensIcon;
      widget.title.closable = true;
      widget.toolbar.hide();
      return widget;
    };
    app.commands.addCommand(CommandIDs.openRuns, {
      label: trans.__('Table of Training Runs'),
      caption: trans.__('Sort, filter, compare, annotate and delete runs'),
      icon: args => (args['isPalette'] ? undefined : megalensIcon),
      describedBy: { args: { type: 'object', properties: {} } },
      execute: async () => {
        if (lab === null) {
          return (await import('../panel/views/view-link')).openPage({ views: [], table: true }, trans);
        }
        let widget = tracker.find(each => !each.isDisposed);
        if (widget === undefined) {
          widget = make();
          void tracker.add(widget);
          app.shell.add(widget, 'main', { type: 'Megalens', mode: 'tab-after' });
        }
        app.shell.activateById(widget.id);
      }
    });
    palette?.addItem({ command: CommandIDs.openRuns, category: trans.__('Megalens') });
    if (restorer) {
      void restorer.restore(tracker, { command: CommandIDs.openRuns, name: ({ id }) => id });
    }
  }
};

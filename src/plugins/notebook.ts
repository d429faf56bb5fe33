import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, Notification } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { CommandIDs, IMegalensRuns, IMegalensViews } from '../tokens';
import { IMegalensPanel } from '../panel/shell/panel-token';

/** What stands for a view: buttons of the panel, and tabs. */
const PLACES = ['.jp-MegalensViews [data-view]', '.jp-MegalensViewTab'];
/** What a view is dragged by. */
const HANDLES =
  '.jp-MegalensViews [data-view], .jp-MegalensViewTab :is(.jp-MegalensView-title, .jp-MegalensToolbar-name)';

/** Views into notebooks: dragged, or inserted by a command. */
export const notebookPlugin: JupyterFrontEndPlugin<void> = {
  id: 'megalens:notebook',
  description: 'Puts the code of Megalens views into notebooks.',
  autoStart: true,
  requires: [IMegalensRuns, IMegalensViews, IMegalensPanel],
  optional: [ITranslator, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    runs: IMegalensRuns,
    views: IMegalensViews,
    panel: IMegalensPanel,
    translator: ITranslator | null,
    palette: ICommandPalette | null
  ): void => {
    const trans = (translator ?? nullTranslator).load('megalens');
    const load = async () => {
      const { ViewInserter } = await import('../panel/views/view-inserter');
      return new ViewInserter({
        runs,
        views,
        panel,
        notebooks: () => app.shell.widgets('main'),
        current: () => app.shell.currentWidget,
        execute: (command, args) => app.commands.execute(command, args),
        tell: sentence => void Notification.warning(sentence, { autoClose: 5000 }),
        trans
      });
    };
    let loading: ReturnType<typeof load> | undefined;
    const inserter = () => (loading ??= load());
    app.shell.node.addEventListener('pointerdown', event => {
      const handle = event.target instanceof Element ? event.target.closest(HANDLES) : null;
      if (handle !== null && event.button === 0 && !event.shiftKey) {
        void inserter().then(loaded => loaded.press(event, handle));
      }
    });
    app.commands.addCommand(CommandIDs.insertView, {
      label: trans.__('Insert View into Notebook'),
      caption: trans.__('Add a cell with the view’s code below the active cell of the notebook'),
      describedBy: {
        args: {
          type: 'object',
          properties: {
            here: { type: 'boolean', description: 'Whether the view is what the context menu was opened on' }
          }
        }
      },
      isEnabled: args => args['here'] === true || views.current !== null,
      execute: async args => {
        const loaded = await inserter();
        const node = app.contextMenuHitTest(each => each.matches(PLACES.join(','))) ?? null;
        return loaded.insert(args['here'] === true ? await loaded.subject(node) : views.current);
      }
    });
    for (const selector of PLACES) {
      app.contextMenu.addItem({ command: CommandIDs.insertView, selector, rank: 0, args: { here: true } });
    }
    palette?.addItem({ command: CommandIDs.insertView, category: trans.__('Megalens') });
  }
};

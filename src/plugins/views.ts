import {
  ILabShell,
  ILayoutRestorer,
  IRouter,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { Clipboard, ICommandPalette, Notification } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { TranslationBundle } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';
import type { Widget } from '@lumino/widgets';
import { ViewTabs } from '../panel/views/view-tabs';
import { CommandIDs, IMegalensRuns, IMegalensViews, type IRunLease } from '../tokens';
import { fetchView } from '../views/fetch-view';
import { translateBy } from '../views/shared/translate';

/** Views as tabs in the main area, there again after a reload. */
export const viewsPlugin: JupyterFrontEndPlugin<IMegalensViews> = {
  id: 'megalens:views',
  description: 'Shows views of training runs in main-area tabs.',
  autoStart: true,
  provides: IMegalensViews,
  requires: [IMegalensRuns],
  optional: [ITranslator, ILayoutRestorer, IRouter, ICommandPalette, ILabShell],
  activate: (
    app: JupyterFrontEnd,
    runs: IMegalensRuns,
    translator: ITranslator | null,
    restorer: ILayoutRestorer | null,
    router: IRouter | null,
    palette: ICommandPalette | null,
    lab: ILabShell | null
  ): IMegalensViews => {
    const trans = (translator ?? nullTranslator).load('megalens');
    if (lab === null) {
      const pages = inPages(trans);
      addLinks(app, pages, trans, router);
      return pages;
    }
    const tabs = new ViewTabs({
      add: (widget, near, mode) => {
        const { currentWidget } = app.shell;
        // The first stands beside the notebook that is worked in, the others with it.
        const beside = near === null && currentWidget !== null && isDocument(currentWidget);
        app.shell.add(widget, 'main', {
          type: 'Megalens',
          mode: mode ?? (beside ? 'split-right' : 'tab-after'),
          ref: (beside ? currentWidget.id : near) ?? undefined
        });
      },
      activate: id => app.shell.activateById(id),
      trans,
      preload: async () => (await tabCode()).preloadViews(idle),
      create: async ({ run, options }, frame) => {
        // The run is opened while the code is loaded; the view takes this share over.
        const early = runs.acquire(run);
        early.catch(() => undefined);
        fetchView(options.view);
        try {
          const [{ ViewHost, mountView, keptViewOptions, openingOf, offered, runLabel }, entries] =
            await Promise.all([tabCode(), runs.list().catch(() => [])]);
          const entry = entries.find(({ id }) => id === run);
          let first: Promise<IRunLease> | null = early;
          return new ViewHost({
            runs: {
              list: () => runs.list(),
              acquire: id => {
                const lease = first ?? runs.acquire(id);
                first = null;
                return lease;
              }
            },
            run: { id: run, name: entry === undefined ? run : runLabel(entry), folder: null },
            ...keptViewOptions(options),
            words: trans,
            mount: (node, opened, view) =>
              mountView(node, opened, view, {
                runs: offered(runs),
                // A tab is as tall as the work area; a cell is as tall as its picture.
                frame,
                opening: openingOf(entry ?? { id: run, state: 'live', folder: null }),
                translate: translateBy(trans),
                openView: other => void tabs.open(run, other),
                exportReport: chosen =>
                  void app.commands.execute(CommandIDs.exportReport, { run, views: JSON.stringify([chosen]) })
              })
          });
        } catch (error) {
          void early.then(lease => lease.dispose()).catch(() => undefined);
          throw error;
        }
      }
    });
    app.commands.addCommand(CommandIDs.openView, {
      label: trans.__('Open a Megalens View'),
      describedBy: {
        args: {
          type: 'object',
          required: ['run', 'options'],
          properties: {
            run: { type: 'string', description: 'Run id' },
            options: { type: 'object', description: 'Options of the view' },
            id: { type: 'string', description: 'Id of the tab that a layout was saved with' }
          }
        }
      },
      isVisible: () => false,
      execute: args => tabs.restore(args)
    });
    if (restorer) {
      void restorer.restore(tabs.tracker, {
        command: CommandIDs.openView,
        args: ({ id, run, options }) => ({ id, run, options: { ...options } }),
        name: ({ id }) => id
      });
    }
    addLinks(app, tabs, trans, router);
    palette?.addItem({ command: CommandIDs.copyLink, category: trans.__('Megalens') });
    return tabs;
  }
};

/** Views where there is no work area with tabs, as in Notebook 7: each in a page of its own. */
function inPages(trans: TranslationBundle): IMegalensViews {
  const tile: IMegalensViews['tile'] = async (run, views) =>
    (await import('../panel/views/view-link')).openPage(
      { views: views.map(options => ({ run, options })) },
      trans
    );
  return {
    open: (run, options) => tile(run, [options]),
    tile,
    preload: () => undefined,
    current: null,
    at: () => null,
    of: () => [],
    changed: new Signal<IMegalensViews, void>({} as IMegalensViews)
  };
}

/** A tab of a view in the work area. */
const TAB = '.lm-TabBar-tab[data-id^="megalens-view-"]';

/** Copy links to views, also from the menu of a tab, and open the view that the page's address names. */
function addLinks(
  app: JupyterFrontEnd,
  tabs: IMegalensViews,
  trans: TranslationBundle,
  router: IRouter | null
): void {
  const args = { args: { type: 'object' as const, properties: {} } };
  app.commands.addCommand(CommandIDs.copyLink, {
    label: trans.__('Copy Link to View'),
    caption: trans.__('For somebody whose server knows the same run, as on one JupyterHub'),
    describedBy: args,
    execute: async () => {
      const { id = '' } = app.contextMenuHitTest(node => node.matches(TAB))?.dataset ?? {};
      const view = tabs.at(id) ?? tabs.current;
      if (view !== null) {
        Clipboard.copyToSystem((await import('../panel/views/view-link')).viewLink(view));
        Notification.info(trans.__('Copied'), { autoClose: 1500 });
      }
    }
  });
  app.contextMenu.addItem({ command: CommandIDs.copyLink, selector: TAB });
  app.commands.addCommand(CommandIDs.followLink, {
    label: trans.__('Open the View That the Address Names'),
    describedBy: args,
    isVisible: () => false,
    execute: async ({ search = '' }) => {
      const { linkedView, withoutView } = await import('../panel/views/view-link');
      const view = linkedView(String(search));
      // The layout is restored by a route too: none is waited for here.
      void app.restored.then(() => {
        const { pathname } = window.location;
        // A reload goes on with the layout as it is then.
        window.history.replaceState({}, '', `${pathname}${withoutView(window.location.search)}`);
        return view === null
          ? void Notification.warning(trans.__('The link to a view cannot be read.'), { autoClose: 8000 })
          : tabs.open(view.run, view.options);
      });
    }
  });
  router?.register({ command: CommandIDs.followLink, pattern: /[?&]megalens-view=/, rank: 15 });
}

/** Whether a tab holds a file, such as a notebook. */
const isDocument = (widget: Widget): boolean => 'context' in widget;

/** What a tab is made of, loaded on first use. */
async function tabCode() {
  const [registry, host, options, code, widgets, labels] = await Promise.all([
    import('../views/registry'),
    import('../widgets/view-host'),
    import('../protocol/view-options'),
    import('../views/code'),
    import('../widgets/runs'),
    import('../client/run-reader')
  ]);
  return { ...registry, ...host, ...options, ...code, ...widgets, ...labels };
}

/** Wait until the page has nothing else to do. */
function idle(): Promise<void> {
  return new Promise(resolve => {
    // Safari has no such callback.
    const { requestIdleCallback: ask = (call: () => void) => window.setTimeout(call, 200) } =
      window as Partial<Window>;
    ask(() => resolve());
  });
}

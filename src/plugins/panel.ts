import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStateDB } from '@jupyterlab/statedb';
import { ITranslator, nullTranslator, type TranslationBundle } from '@jupyterlab/translation';
import type { Title, Widget } from '@lumino/widgets';
import { formatCount } from '../charts/format';
import { megalensIcon } from '../panel/shell/commands';
import { LazyPanel } from '../panel/shell/lazy-panel';
import { faultSentence } from '../views/shared/fault-text';
import { IMegalensRuns, IMegalensViews } from '../tokens';
import { IMegalensPanel } from '../panel/shell/panel-token';

const ID = 'megalens:panel';

export const panelPlugin: JupyterFrontEndPlugin<IMegalensPanel> = {
  id: ID,
  description: 'Shows training runs in the sidebar and sets what they trace.',
  autoStart: true,
  provides: IMegalensPanel,
  requires: [IMegalensRuns, IMegalensViews],
  optional: [ITranslator, ILayoutRestorer, ISettingRegistry, IStateDB],
  activate: (
    app: JupyterFrontEnd,
    runs: IMegalensRuns,
    views: IMegalensViews,
    translator: ITranslator | null,
    restorer: ILayoutRestorer | null,
    registry: ISettingRegistry | null,
    state: IStateDB | null
  ): IMegalensPanel => {
    const trans = (translator ?? nullTranslator).load('megalens');
    const settings = registry?.load(ID).catch(() => null) ?? Promise.resolve(null);
    const panel = new LazyPanel(
      async () => {
        const [{ createPanel }, { alarmsOf }] = await Promise.all([
          import('../panel/shell/panel-widget'),
          import('../panel/shell/open-run')
        ]);
        const made = await createPanel({
          commands: app.commands,
          runs,
          views,
          trans,
          state,
          settings: await settings
        });
        made.model.changed.connect(({ open }) => {
          badge(panel.title, alarmsOf(open), trans);
          if (open) {
            // Whoever looks at a run opens a view of it next.
            views.preload();
          }
        });
        return made;
      },
      reason => trans.__('The panel could not be loaded: %1. Reload the page.', faultSentence(reason)),
      { again: trans.__('Try again'), copy: trans.__('Copy details') }
    );
    panel.id = 'megalens-panel';
    panel.title.icon = megalensIcon;
    badge(panel.title, 0, trans);
    panel.node.setAttribute('role', 'region');
    panel.node.setAttribute('aria-label', trans.__('Megalens'));
    // Voila has cells alone.
    if ('expandLeft' in app.shell) {
      app.shell.add(panel, 'left', { rank: 450, type: 'Megalens' });
    }
    restorer?.add(panel, 'megalens-panel');
    const reveal = () => app.shell.activateById(panel.id);
    void Promise.all([settings, app.restored]).then(([loaded]) => {
      if (loaded?.get('openAtStart').composite === true) {
        reveal();
      }
    });
    return { reveal, model: async () => (await panel.content()).model };
  }
};

/** Say beside the icon how many alarms the chosen run has. */
function badge(title: Title<Widget>, alarms: number, trans: TranslationBundle): void {
  // JupyterLab keeps the panel's id there.
  const { alarms: before = '', ...rest } = title.dataset;
  const now = alarms === 0 ? '' : formatCount(alarms);
  if (before !== now || title.caption === '') {
    title.dataset = now === '' ? rest : { ...rest, alarms: now };
    title.caption =
      alarms === 0
        ? trans.__('Megalens: training runs')
        : trans._n('Megalens: %1 alarm', 'Megalens: %1 alarms', alarms);
  }
}

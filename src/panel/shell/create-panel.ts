import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import type { IStateDB } from '@jupyterlab/statedb';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import { isRunId } from '../../client/runs-api';
import type { IMegalensRuns, IMegalensViews } from '../../tokens';
import { createPanelHost } from './panel-host';
import { PanelModel } from './panel-model';
import { loadPanelParts } from './panel-part';
import { MegalensPanel } from './panel-widget';

const CHOICE = 'megalens:chosen-run';

export interface ICreatePanelOptions {
  commands: CommandRegistry;
  runs: IMegalensRuns;
  views: IMegalensViews;
  trans: TranslationBundle;
  /** Where the choice is kept over a reload. */
  state: IStateDB | null;
  settings: ISettingRegistry.ISettings | null;
}

/** Make the panel with what was chosen before the reload. */
export async function createPanel(options: ICreatePanelOptions): Promise<MegalensPanel> {
  const { commands, runs, views, trans, state, settings } = options;
  const remember = (run: string | null) => void state?.save(CHOICE, run);
  const model = new PanelModel(
    runs,
    createPanelHost({ commands, views, trans, remember }),
    trans,
    undefined,
    await loadPanelParts()
  );
  model.setting = name => settings?.get(name).composite;
  const read = () => {
    model.runs.options = {
      chooseNewest: settings?.get('chooseNewest').composite !== false,
      refreshEvery: Number(settings?.get('refreshSeconds').composite ?? 2) * 1000
    };
  };
  read();
  settings?.changed.connect(read);
  // What cannot be read is dropped: a panel without its last choice is better than none.
  const kept = await state?.fetch(CHOICE).catch(() => '');
  if (isRunId(kept)) {
    model.runs.restore(kept);
  } else if (kept !== undefined && kept !== null) {
    void state?.remove(CHOICE);
    model.host.warn(
      trans.__('The run that was chosen last could not be read from the saved state, and was forgotten.')
    );
  }
  return new MegalensPanel(model);
}

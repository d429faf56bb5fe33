import type { TranslationBundle } from '@jupyterlab/translation';
import { LabIcon } from '@jupyterlab/ui-components';
import type { CommandRegistry } from '@lumino/commands';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import type { IDisposable } from '@lumino/disposable';
import type { IViewInfo } from '../../protocol/view-descriptor';
import type { ViewOptions } from '../../protocol/views.generated';
import { CommandIDs, type IMegalensViews } from '../../tokens';
import type { IMegalensPanel } from './panel-token';
import type { PanelModel } from './panel-model';

/** A lens over bars. `jp-icon3` lets the theme colour it. */
export const megalensIcon = new LabIcon({
  name: 'megalens:lens',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" width="16">
  <g class="jp-icon3" fill="#616161">
    <path d="M10.5 2a8.5 8.5 0 1 0 5.2 15.2l4.6 4.6a1.1 1.1 0 0 0 1.6-1.6l-4.6-4.6A8.5 8.5 0 0 0 10.5 2zm0 2a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13z"/>
    <rect x="6.7" y="10" width="1.9" height="4" rx=".6"/>
    <rect x="9.6" y="7" width="1.9" height="7" rx=".6"/>
    <rect x="12.5" y="8.8" width="1.9" height="5.2" rx=".6"/>
  </g>
</svg>`
});

const NO_ARGS = { args: { type: 'object' as const, properties: {} } };
const VIEW_ARGS = {
  args: {
    type: 'object' as const,
    properties: {
      run: { type: 'string' as const, description: 'Run id; the run that the panel shows when absent' }
    },
    description: 'Further members are options of the view, as protocol/views.schema.json has them'
  }
};
const REPORT_ARGS = {
  args: {
    type: 'object' as const,
    properties: {
      run: { type: 'string' as const, description: 'Run id; the run that the panel shows when absent' },
      views: { type: 'string' as const, description: 'JSON list of view options; the open views when absent' }
    }
  }
};

/** Add the commands that act on the panel's run. Each works before the panel was ever shown. */
export function addPanelCommands(
  commands: CommandRegistry,
  panel: IMegalensPanel,
  trans: TranslationBundle
): void {
  const ready = () => readyModel(panel);
  commands.addCommand(CommandIDs.openPanel, {
    label: args => (args['isLauncher'] ? trans.__('Training Runs') : trans.__('Show Training Runs')),
    caption: trans.__('See inside a training run: tensors, loss and their charts'),
    icon: megalensIcon,
    describedBy: NO_ARGS,
    execute: () => panel.reveal()
  });
  commands.addCommand(CommandIDs.exportReport, {
    label: trans.__('Export Report…'),
    describedBy: REPORT_ARGS,
    execute: async args => {
      const model = await ready();
      const views =
        typeof args['views'] === 'string' ? (JSON.parse(args['views']) as ViewOptions[]) : undefined;
      const run = typeof args['run'] === 'string' ? args['run'] : undefined;
      return model.exportReport(run, views);
    }
  });
  commands.addCommand(CommandIDs.copyCode, {
    label: trans.__('Copy Run, Settings and Views as Python Code'),
    describedBy: NO_ARGS,
    execute: async () => (await ready()).copyCode()
  });
  commands.addCommand(CommandIDs.applySettings, {
    label: trans.__('Apply Trace Settings'),
    describedBy: NO_ARGS,
    execute: async () => (await ready()).open?.trace.submit()
  });
  commands.addCommand(CommandIDs.revertSettings, {
    label: trans.__('Revert Trace Settings'),
    describedBy: NO_ARGS,
    execute: async () => (await ready()).open?.trace.revert()
  });
  commands.addCommand(CommandIDs.refreshRuns, {
    label: trans.__('Look for Training Runs Now'),
    describedBy: NO_ARGS,
    execute: async () => (await panel.model()).runs.refresh()
  });
  commands.addCommand(CommandIDs.connectHub, {
    label: trans.__('Connect to a Hub by Address…'),
    describedBy: NO_ARGS,
    execute: async () => (await panel.model()).actions.connect()
  });
  commands.addCommand(CommandIDs.openStatistics, {
    label: trans.__('Open Statistics from Files…'),
    caption: trans.__('Read raw-moment JSONL files that another logger wrote'),
    describedBy: NO_ARGS,
    execute: async () => {
      panel.reveal();
      return (await panel.model()).actions.openStatistics();
    }
  });
}

/** Add the command that opens a view, of the panel's run unless another is given. */
export function addViewCommand(
  commands: CommandRegistry,
  { name, label, summary, command, icon, needs }: IViewInfo,
  panel: IMegalensPanel,
  views: IMegalensViews,
  trans: TranslationBundle
): IDisposable {
  return commands.addCommand(command, {
    label: trans.__(label),
    caption: trans.__(summary),
    describedBy: VIEW_ARGS,
    icon: args =>
      args['isPalette'] ? undefined : icon === undefined ? megalensIcon : LabIcon.resolve({ icon }),
    execute: async args => {
      const { run, options } = splitArguments(args);
      if (run !== null && (!needs.flag || 'flag' in options)) {
        return views.open(run, { ...options, view: name } as ViewOptions);
      }
      const model = await readyModel(panel);
      if (model.open === null) {
        return panel.reveal();
      }
      return model.openView(name, options as Partial<ViewOptions>);
    }
  });
}

async function readyModel(panel: IMegalensPanel): Promise<PanelModel> {
  const model = await panel.model();
  await model.ready();
  return model;
}

function splitArguments(args: ReadonlyPartialJSONObject): {
  run: string | null;
  options: ReadonlyPartialJSONObject;
} {
  const { run, isPalette: _p, isLauncher: _l, ...options } = args;
  return { run: typeof run === 'string' ? run : null, options };
}

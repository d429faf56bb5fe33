import type { TranslationBundle } from '@jupyterlab/translation';
import { LabIcon } from '@jupyterlab/ui-components';
import type { CommandRegistry } from '@lumino/commands';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import type { IDisposable } from '@lumino/disposable';
import type { IViewInfo, ViewGroup } from '../../protocol/view-descriptor';
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

/** What views are about, in 24 × 24. The lens is that of the run as a whole. */
const SHAPES: Readonly<Record<Exclude<ViewGroup, 'run'>, string>> = {
  tensors: 'M3 3h5v5H3zM10 3h5v5h-5zM17 3h4v5h-4zM3 10h5v5H3zM10 10h5v5h-5zM3 17h5v4H3zM17 17h4v4h-4z',
  statistics: 'M3 3h2v16h16v2H3zM7 14l4-5 4 3 4-7 2 1-5 9-4-3-3 4z',
  alarms: 'M12 2a6 6 0 0 1 6 6v6l3 3v1H3v-1l3-3V8a6 6 0 0 1 6-6zM9 19h6a3 3 0 0 1-6 0z',
  time: 'M2 4h11v4H2zM7 10h9v4H7zM12 16h10v4H12z',
  text: 'M3 4h18v2H3zM3 9h13v2H3zM3 14h17v2H3zM3 19h9v2H3z',
  plans: 'M2 4h6v6H2zM9 4h6v6H9zM9 14h6v6H9zM16 14h6v6h-6z'
};
const icons = new Map(
  Object.entries(SHAPES).map(([group, shape]) => {
    const svgstr = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" width="16"><path class="jp-icon3" fill="#616161" d="${shape}"/></svg>`;
    return [group, new LabIcon({ name: `megalens:${group}`, svgstr })];
  })
);

/** A view's icon: its own, or that of what it is about. */
export function viewIcon({ icon, group }: Pick<IViewInfo, 'icon' | 'group'>): LabIcon {
  return icon === undefined ? (icons.get(group ?? '') ?? megalensIcon) : LabIcon.resolve({ icon });
}

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
  commands.addCommand(CommandIDs.openFiles, {
    label: trans.__('Open Files of Other Tools…'),
    caption: trans.__('Open statistics, traces and logs that another tool wrote'),
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
  info: IViewInfo,
  panel: IMegalensPanel,
  views: IMegalensViews,
  trans: TranslationBundle
): IDisposable {
  const { name, label, summary, command, needs } = info;
  return commands.addCommand(command, {
    label: trans.__(label),
    caption: trans.__(summary),
    describedBy: VIEW_ARGS,
    icon: args => (args['isPalette'] ? undefined : viewIcon(info)),
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

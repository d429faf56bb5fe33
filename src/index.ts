import { commandsPlugin } from './plugins/commands';
import { launcherPlugin } from './plugins/launcher';
import { mimePlugin } from './plugins/mime';
import { notebookPlugin } from './plugins/notebook';
import { panelPlugin } from './plugins/panel';
import { runsPlugin } from './plugins/runs';
import { viewRegistryPlugin } from './plugins/view-registry';
import { viewsPlugin } from './plugins/views';
import { widgetsPlugin } from './plugins/widgets';

// What packages with views of their own need; the token has to be this one.
export { IMegalensViewRegistry } from './tokens';
export type { IViewDescriptor, IViewInfo } from './protocol/view-info';
export type { IRunSource } from './store/source';
export type { IOtherHost, IOtherMounted, IViewModule, OtherOptions } from './views/other-views';

/** Every plugin of the extension. */
export default [
  runsPlugin,
  viewRegistryPlugin,
  viewsPlugin,
  panelPlugin,
  commandsPlugin,
  launcherPlugin,
  notebookPlugin,
  widgetsPlugin,
  mimePlugin
];

import { commandsPlugin } from './plugins/commands';
import { launcherPlugin } from './plugins/launcher';
import { mimePlugin } from './plugins/mime';
import { notebookPlugin } from './plugins/notebook';
import { panelPlugin } from './plugins/panel';
import { runsPlugin } from './plugins/runs';
import { viewsPlugin } from './plugins/views';
import { widgetsPlugin } from './plugins/widgets';

/** Every plugin of the extension. */
export default [
  runsPlugin,
  viewsPlugin,
  panelPlugin,
  commandsPlugin,
  launcherPlugin,
  notebookPlugin,
  widgetsPlugin,
  mimePlugin
];

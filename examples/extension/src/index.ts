import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IMegalensViewRegistry, type IViewDescriptor } from 'megalens';

/** All that is known of the view before its code is loaded. */
export const descriptor: IViewDescriptor = {
  name: 'weight_norms',
  title: 'Weight norms',
  summary: 'The norm of each weight over steps',
  label: 'Open Weight Norms',
  command: 'megalens-weight-norms:open',
  offer: ['panel', 'palette'],
  needs: { streams: ['scalars'], flag: false, absent: 'No weight norms are logged' },
  options: {
    type: 'object',
    additionalProperties: false,
    properties: {
      prefix: { type: 'string', default: 'weight_norm/', description: 'What the names drawn begin with.' },
      relative: { type: 'boolean', default: false, description: 'Divide each line by its first value.' }
    }
  }
};

const plugin: JupyterFrontEndPlugin<void> = {
  id: 'megalens-weight-norms:plugin',
  description: 'Adds a view of weight norms to Megalens.',
  autoStart: true,
  requires: [IMegalensViewRegistry],
  activate: (_app: JupyterFrontEnd, registry: IMegalensViewRegistry): void => {
    registry.register(descriptor, () => import('./view'));
  }
};

export default plugin;

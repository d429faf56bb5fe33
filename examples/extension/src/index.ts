import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IMegalensViewRegistry, kitOptions, type IViewDescriptor } from 'megalens';

/** All that is known of the view before its code is loaded. */
export const descriptor: IViewDescriptor = {
  name: 'weight_norms',
  title: 'Weight norms',
  summary: 'The norm of each weight over steps',
  label: 'Open Weight Norms',
  command: 'megalens-weight-norms:open',
  offer: ['panel', 'palette'],
  needs: { streams: ['weight_norms'], flag: false, absent: 'No weight norms are logged' },
  // Smoothing, other runs, the scale and what is hidden are options of every view of lines.
  options: kitOptions('lines', {
    contains: { type: 'string', default: '', description: 'What the names of the weights drawn contain.' },
    relative: { type: 'boolean', default: false, description: 'Divide each line by its first value.' }
  })
};

const plugin: JupyterFrontEndPlugin<void> = {
  id: 'megalens-weight-norms:plugin',
  description: 'Adds a view of weight norms to Megalens.',
  autoStart: true,
  requires: [IMegalensViewRegistry],
  activate: (_app: JupyterFrontEnd, registry: IMegalensViewRegistry): void => {
    registry.register(descriptor, async () => (await import('./view')).load());
  }
};

export default plugin;

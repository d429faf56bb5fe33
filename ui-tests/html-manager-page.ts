import * as base from '@jupyter-widgets/base';
import { HTMLManager } from '@jupyter-widgets/html-manager';
import { KernelManager, ServerConnection } from '@jupyterlab/services';
import type { IDisplayDataMsg } from '@jupyterlab/services/lib/kernel/messages';

const VIEW = 'application/vnd.jupyter.widget-view+json';

/** What anywidget's own script defines, which pages have by an AMD loader. */
let anywidget: unknown;
const define = (_: string[], make: (needed: unknown) => unknown): void => void (anywidget = make(base));

/** Run code in a kernel of its own and show the widgets that it displays: html-manager alone, no JupyterLab. */
async function show(baseUrl: string, token: string, code: string): Promise<void> {
  const wsUrl = baseUrl.replace(/^http/, 'ws');
  const serverSettings = ServerConnection.makeSettings({ baseUrl, wsUrl, token, appendToken: true });
  const kernel = await new KernelManager({ serverSettings }).startNew({ name: 'python3' });
  const manager = new HTMLManager({
    loader: name => (name === 'anywidget' ? Promise.resolve(anywidget) : Promise.reject(new Error(name)))
  });
  kernel.registerCommTarget('jupyter.widget', async (comm, message) => {
    await manager.handle_comm_open(new base.shims.services.Comm(comm), message);
  });
  const run = (text: string) => {
    const future = kernel.requestExecute({ code: text });
    future.onIOPub = async message => {
      const found = (message as IDisplayDataMsg).content.data?.[VIEW] as { model_id: string } | undefined;
      if (found) {
        const model = await manager.get_model(found.model_id);
        await manager.display_view(await manager.create_view(model), document.body);
      } else if (message.header.msg_type === 'stream' || message.header.msg_type === 'error') {
        document.title += JSON.stringify(message.content);
      }
    };
    return future.done;
  };
  Object.assign(window, { run });
  await run(code);
}

Object.assign(window, { define, show });

import { Notification } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';

/** How long a toast that says nothing about it is shown, ms. */
const SHOWN_MS = 5_000;

/** Show what JupyterLab's code tells in passing, which JupyterLab itself draws by an extension of its own. */
export function showToasts(host: HTMLElement, trans: TranslationBundle): void {
  const shown = new Map<string, HTMLElement>();
  Notification.manager.changed.connect((manager, { type, notification }) => {
    const { id, message, options } = notification;
    shown.get(id)?.remove();
    shown.delete(id);
    if (type === 'removed') {
      return;
    }
    const toast = document.createElement('div');
    toast.className = 'jp-MegalensPage-toast';
    toast.dataset['type'] = notification.type;
    toast.setAttribute('role', 'status');
    const words = document.createElement('p');
    words.textContent = message;
    toast.append(words);
    const dismiss = { label: trans.__('Dismiss'), callback: () => undefined };
    for (const { label, callback } of [...(options.actions ?? []), dismiss]) {
      const button = document.createElement('button');
      button.className = 'jp-MegalensButton';
      button.textContent = label;
      button.onclick = event => {
        callback(event);
        manager.dismiss(id);
      };
      toast.append(button);
    }
    host.append(toast);
    shown.set(id, toast);
    if (options.autoClose !== false) {
      setTimeout(() => shown.get(id) === toast && manager.dismiss(id), options.autoClose ?? SHOWN_MS);
    }
  });
}

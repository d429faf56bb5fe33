import { Clipboard, Notification, showErrorMessage } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import type { IMegalensViews } from '../tokens';
import { askHub, askName, askReport } from './dialogs';
import type { IPanelHost } from './panel-model';

/** What of JupyterLab the panel uses. */
export interface IPanelHostOptions {
  commands: CommandRegistry;
  views: IMegalensViews;
  trans: TranslationBundle;
  remember: (run: string | null) => void;
}

/** The panel's hands in JupyterLab. */
export function createPanelHost({ commands, views, trans, remember }: IPanelHostOptions): IPanelHost {
  return {
    remember,
    openView: (run, options) => views.open(run, options),
    openViews: run => views.of(run),
    reloadPage: () => window.location.reload(),
    askReport: (run, options) => askReport(run, options, trans),
    askHub: () => askHub(trans),
    askName: now => askName(now, trans),
    copy: text => {
      Clipboard.copyToSystem(text);
      Notification.info(trans.__('Copied'), { autoClose: 1500 });
    },
    revealFolder: async path => {
      await commands.execute('filebrowser:open-path', { path });
    },
    save: (name, content) => {
      const link = document.createElement('a');
      link.href = URL.createObjectURL(content);
      link.download = name;
      link.click();
      // The browser has taken its own reference by the next turn.
      setTimeout(() => URL.revokeObjectURL(link.href), 0);
    },
    tell: (title, error) => showErrorMessage(title, error instanceof Error ? error.message : String(error)),
    progress: async (label, work, cancel) => {
      const id = Notification.emit(label, 'in-progress', {
        autoClose: false,
        actions: [{ label: trans.__('Cancel'), callback: cancel }]
      });
      try {
        return await work;
      } finally {
        Notification.dismiss(id);
      }
    }
  };
}

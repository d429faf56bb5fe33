import { Clipboard, Notification, showErrorMessage } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import type { ViewOptions } from '../../protocol/views.generated';
import {
  CommandIDs,
  type IMegalensViews,
  type IReportRequest,
  type IRunEntry,
  type RunChanges
} from '../../tokens';
import { askHub, askName, askReport, askStatistics } from './dialogs';
import { askDelete, askKeepNewest, askNotes } from '../runs/run-dialogs';
import type { IHubAddress } from '../runs/hub-form';

/** What windows share. */
export type Json = Readonly<Record<string, number>>;

export interface IPanelHost {
  openView(run: string, options: ViewOptions): Promise<void>;
  /** Show up to three views together. */
  tileViews(run: string, views: readonly ViewOptions[]): Promise<void>;
  /** Options of the run's open views, for the report and for Copy as code. */
  openViews(run: string): readonly ViewOptions[];
  openRuns(): Promise<void>;
  copy(text: string): void;
  revealFolder(path: string): Promise<void>;
  reloadPage(): void;
  /** Ask what the report shall hold; null when cancelled. */
  askReport(run: IRunEntry, views: readonly ViewOptions[]): Promise<IReportRequest | null>;
  /** Ask where another hub is; null when cancelled. */
  askHub(): Promise<IHubAddress | null>;
  /** Ask where raw-moment files are, below the server's root; null when cancelled. */
  askStatistics(): Promise<string | null>;
  /** Ask for notes and tags; null when cancelled. */
  askNotes(run: IRunEntry): Promise<Required<Pick<RunChanges, 'notes' | 'tags'>> | null>;
  /** Ask whether these recordings shall be deleted. */
  askDelete(runs: readonly IRunEntry[]): Promise<boolean>;
  /** Ask how many of the newest recordings to keep: those to delete, none when cancelled. */
  askKeepNewest(runs: readonly IRunEntry[]): Promise<readonly IRunEntry[]>;
  /** Ask for a new name; null when cancelled. */
  askName(now: string): Promise<string | null>;
  save(name: string, content: Blob): void;
  /** Tell the user in passing that something saved could not be read. */
  warn(sentence: string): void;
  /** Tell the user of an alarm of a live run; the button `label` shows it. */
  alarm(sentence: string, label: string, open: () => void): void;
  /**
   * Change what all windows of the page know of something, one window at a time: null of what nobody noted
   * yet, and null to leave it.
   */
  share(name: string, change: (before: Json | null) => Json | null): void;
  tell(title: string, error: unknown): Promise<void>;
  /** Show that work is under way; the promise's end closes it. `cancel` stops the work. */
  progress<T>(label: string, work: Promise<T>, cancel: () => void): Promise<T>;
  /** Keep the choice over a reload. */
  remember(run: string | null): void;
}

export interface IPanelHostOptions {
  commands: CommandRegistry;
  views: IMegalensViews;
  trans: TranslationBundle;
  remember: (run: string | null) => void;
}

const SHARED = 'megalens:shared';
/** What was noted last is kept of so many names. */
const MOST_SHARED = 100;

/** Read, change and write a note in the browser's storage while no other window does. */
function share(name: string, change: (before: Json | null) => Json | null): void {
  const turn = (): void => {
    let notes: [string, Json][] = [];
    try {
      notes = JSON.parse(localStorage.getItem(SHARED) ?? '[]') as typeof notes;
    } catch {
      // Without a storage, or with one that somebody else wrote, this window is alone.
    }
    const known = new Map(Array.isArray(notes) ? notes.filter(Array.isArray) : []);
    const next = change(known.get(name) ?? null);
    if (next !== null) {
      known.delete(name);
      try {
        localStorage.setItem(SHARED, JSON.stringify([...known, [name, next]].slice(-MOST_SHARED)));
      } catch {
        // A full or forbidden storage: other windows tell it too.
      }
    }
  };
  // Pages that are not served by https have no locks.
  const locks = (navigator as Partial<Navigator>).locks;
  void (locks === undefined ? turn() : locks.request(SHARED, turn));
}

/** How long an alarm is shown over the page, ms. */
const ALARM_MS = 15_000;

/** The panel's hands in JupyterLab. */
export function createPanelHost({ commands, views, trans, remember }: IPanelHostOptions): IPanelHost {
  return {
    remember,
    share,
    openView: (run, options) => views.open(run, options),
    tileViews: (run, options) => views.tile(run, options),
    openViews: run => views.of(run),
    openRuns: async () => {
      await commands.execute(CommandIDs.openRuns);
    },
    reloadPage: () => window.location.reload(),
    askReport: (run, options) => askReport(run, options, trans),
    askHub: () => askHub(trans),
    askStatistics: () => askStatistics(trans),
    askName: now => askName(now, trans),
    askNotes: run => askNotes(run, trans),
    askDelete: runs => askDelete(runs, trans),
    askKeepNewest: runs => askKeepNewest(runs, trans),
    copy: text => {
      Clipboard.copyToSystem(text);
      Notification.info(trans.__('Copied'), { autoClose: 1500 });
    },
    revealFolder: async path => {
      if (commands.hasCommand('filebrowser:open-path')) {
        await commands.execute('filebrowser:open-path', { path });
      } else {
        Notification.info(trans.__('The folder is %1, below the root of the Jupyter server.', path));
      }
    },
    save: (name, content) => {
      const link = document.createElement('a');
      link.href = URL.createObjectURL(content);
      link.download = name;
      link.click();
      // The browser has taken its own reference by the next turn.
      setTimeout(() => URL.revokeObjectURL(link.href), 0);
    },
    warn: sentence => void Notification.warning(sentence, { autoClose: 8000 }),
    alarm: (sentence, label, open) =>
      void Notification.warning(sentence, {
        // It is in the panel too: a picture is covered for a while only.
        autoClose: ALARM_MS,
        actions: [{ label, callback: open }]
      }),
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

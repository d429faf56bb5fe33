import { Token } from '@lumino/coreutils';
import type { IDisposable } from '@lumino/disposable';
import type { ISignal } from '@lumino/signaling';
import type {
  DemoState,
  DemoAction,
  IForeignHub,
  IReportFile,
  IRunEntry,
  IRunList,
  IRunSummary,
  RunChanges
} from './client/runs-api';
import type { ICourses } from './client/courses';
import type { CoursesRequest } from './protocol/requests.generated';
import type { IViewDescriptor, IViewInfo } from './protocol/view-descriptor';
import type { ViewOptions } from './protocol/views.generated';
import type { IRunSource } from './store/source';
import type { IViewModule } from './views/other-views';

export type { IReportFile, IRunEntry, IRunSummary, RunChanges };

/** A share in a run's source. Every viewer of a page that looks at one run shares one connection. */
export interface IRunLease {
  readonly source: IRunSource;
  /** Give the share back; the last one closes the connection. Safe twice. */
  dispose(): void;
}

/** What a report shall hold. */
export interface IReportRequest {
  format: 'html' | 'ipynb';
  views: readonly ViewOptions[];
  title?: string;
  /** What it speaks; JupyterLab's language when absent. */
  language?: string;
}

/** The runs that this Jupyter server can reach, and one shared source for each that is looked at. */
export interface IMegalensRuns {
  /** Every run that the server knows, newest first. Rejects when the server does not answer or refuses. */
  list(): Promise<readonly IRunEntry[]>;
  /** The same, with sentences on folders that cannot be read. */
  listAll(): Promise<IRunList>;
  /** Rename a run, or write notes and tags to it. */
  describe(id: string, changes: RunChanges): Promise<void>;
  /** Delete a recording; gives whether its folder is gone. Rejects for a run whose hub still runs. */
  remove(id: string): Promise<boolean>;
  /** What the table of runs says of every recording, by id. */
  summaries(): Promise<ReadonlyMap<string, IRunSummary>>;
  /** One scalar of many recorded runs, outliers first. */
  courses(request: CoursesRequest): Promise<ICourses>;
  /** Reach a hub elsewhere that the administrator allows. The token goes to the server and stays there. */
  connect(address: string, token: string, foreign?: IForeignHub | null): Promise<IRunEntry>;
  /** Open a tree of raw-moment files below the server's root; its runs are listed from then on. */
  openStatistics(path: string): Promise<IRunList>;
  /** Freeze views into one file. */
  report(id: string, request: IReportRequest, signal?: AbortSignal): Promise<IReportFile>;
  /** Look at, start or stop the demo training of the Jupyter server. */
  demo(action: DemoAction): Promise<DemoState>;
  /** Share in the run's source, live or recorded as the server says. */
  acquire(id: string): Promise<IRunLease>;
}

/** The page's run service. */
export const IMegalensRuns = new Token<IMegalensRuns>(
  'megalens:IMegalensRuns',
  'The training runs that this Jupyter server can reach, shared by panel, tabs and cells.'
);

/** A view of a run, as a tab holds it. */
export interface IViewReference {
  /** Run id. */
  readonly run: string;
  readonly options: ViewOptions;
}

/** The main-area tabs that show views. */
export interface IMegalensViews {
  /** Open a view as a tab, or show the tab that has it. */
  open(run: string, options: ViewOptions): Promise<void>;

  /** Show up to three views of a run: one at the left, the others at its right, one above the other. */
  tile(run: string, views: readonly ViewOptions[]): Promise<void>;
  /**
   * Load what views are made of while the page is idle, so that the first one is there at once. Safe twice;
   * a failure is reported when a view needs it.
   */
  preload(): void;
  /** The view that was last in focus, or null. */
  readonly current: IViewReference | null;
  /** The view of a tab, by the tab's id; null when there is none. */
  at(tab: string): IViewReference | null;
  /** Every open view of one run. */
  of(run: string): readonly ViewOptions[];
  /** Emitted when tabs open, close or change their options. */
  readonly changed: ISignal<IMegalensViews, void>;
}

/** The page's view tabs. */
export const IMegalensViews = new Token<IMegalensViews>(
  'megalens:IMegalensViews',
  'The main-area tabs that show Megalens views.'
);

/** Every view, our own and those of other packages. */
export interface IMegalensViewRegistry {
  /**
   * Register a view of another package. From then on it has a tab, a button, an entry of the palette and a
   * line of code.
   *
   * @param load Loads its code when it is first shown.
   * @throws {ProtocolError} When its name is no name, or is taken.
   */
  register<O extends object>(descriptor: IViewDescriptor, load: () => Promise<IViewModule<O>>): IDisposable;
  /** Run something for every view, now and later. What it returns is disposed of with the view. */
  follow(act: (info: IViewInfo) => IDisposable): void;
}

/** The page's register of views. */
export const IMegalensViewRegistry = new Token<IMegalensViewRegistry>(
  'megalens:IMegalensViewRegistry',
  'Every Megalens view; other packages register theirs here.'
);

/**
 * Commands of the extension. Each view has one more (`command` of its descriptor), with `run` (the panel's if
 * absent) and any of the view's options as arguments.
 */
export const CommandIDs = {
  openPanel: 'megalens:open-panel',
  /** Args: `run`, `options`, and `id` when a layout is restored. */
  openView: 'megalens:open-view',
  /** Args: an address with a view in it, as the router gives it. */
  followLink: 'megalens:follow-view-link',
  copyLink: 'megalens:copy-view-link',
  exportReport: 'megalens:export-report',
  copyCode: 'megalens:copy-code',
  insertView: 'megalens:insert-view',
  applySettings: 'megalens:apply-settings',
  revertSettings: 'megalens:revert-settings',
  refreshRuns: 'megalens:refresh-runs',
  connectHub: 'megalens:connect-hub',
  openFiles: 'megalens:open-files',
  openRuns: 'megalens:open-runs',
  renameRun: 'megalens:rename-run',
  editNotes: 'megalens:edit-run-notes',
  deleteRun: 'megalens:delete-run',
  revealFolder: 'megalens:reveal-run-folder',
  copyRunCode: 'megalens:copy-run-code',
  closeRun: 'megalens:close-run'
} as const;

import { Signal } from '@lumino/signaling';
import { ClientError } from '../../client/rest';
import type { IForeignHub, IRunList } from '../../client/runs-api';
import { viewInfos } from '../../protocol/view-info';
import type { IViewInfo } from '../../protocol/view-descriptor';
import { viewDefaults } from '../../protocol/view-options';
import type { IMegalensRuns, IRunEntry, RunChanges } from '../../tokens';

/** How runs are compared: as lines over one another, differences from the first run, or ratios to it. */
export const COMPARE_AS = ['overlay', 'difference', 'ratio'] as const;
export type CompareAs = (typeof COMPARE_AS)[number];

/** The views that can show several runs. */
export function comparingViews(): readonly IViewInfo[] {
  return viewInfos().filter(({ name, offer }) => offer.includes('panel') && 'runs' in viewDefaults(name));
}

/** How the list of runs stands. */
export type ListState =
  | { kind: 'loading' }
  | { kind: 'ready' }
  /** The Jupyter server does not answer. */
  | { kind: 'offline'; message: string }
  /** The Jupyter server answers and has no Megalens. */
  | { kind: 'missing'; message: string }
  /** The Jupyter server refuses. */
  | { kind: 'forbidden'; message: string };

export interface IRunsModelOptions {
  /** Choose the newest live run when nothing else was chosen. */
  chooseNewest: boolean;
  refreshEvery: number;
}

/**
 * The runs that the server lists, and which one is chosen.
 *
 * It asks the server while `watching`; a person's choice is kept, otherwise the newest live run is chosen.
 */
export class RunsModel {
  constructor(
    private readonly runs: Pick<
      IMegalensRuns,
      'listAll' | 'describe' | 'remove' | 'connect' | 'openStatistics'
    >,
    public options: IRunsModelOptions = { chooseNewest: true, refreshEvery: 2000 }
  ) {}

  readonly changed = new Signal<this, void>(this);

  get entries(): readonly IRunEntry[] {
    return this._entries;
  }

  /** Sentences on folders that cannot be read, as of the last answer. */
  get warnings(): readonly string[] {
    return this._warnings;
  }

  get state(): ListState {
    return this._state;
  }

  get chosen(): IRunEntry | null {
    return this._entries.find(entry => entry.id === this._chosen) ?? null;
  }

  /** The chosen run's id, also before the list names it. */
  get chosenId(): string | null {
    return this._chosen;
  }

  /** Whether a person made the choice, now or before a reload. */
  get chosenByHand(): boolean {
    return this._byHand;
  }

  /** Whether the server is asked again and again. */
  get watching(): boolean {
    return this._watching;
  }

  set watching(on: boolean) {
    if (on === this._watching || this._disposed) {
      return;
    }
    this._watching = on;
    clearTimeout(this._timer);
    if (on) {
      void this.refresh();
    }
  }

  /** Choose a run; null chooses none and keeps it so. No runs are marked then. */
  choose(id: string | null): void {
    this._byHand = true;
    this.mark([]);
    this._setChosen(id);
  }

  /** Ids of the marked runs, for comparing or deleting: the chosen one first, then in the list's order. */
  get marked(): readonly string[] {
    return this._entries
      .map(({ id }) => id)
      .filter(id => this._marked.has(id))
      .sort((a, b) => Number(b === this._chosen) - Number(a === this._chosen));
  }

  mark(ids: Iterable<string>): void {
    const marked = new Set(ids);
    if (marked.size !== this._marked.size || [...marked].some(id => !this._marked.has(id))) {
      this._marked = marked;
      this.changed.emit();
    }
  }

  /** Mark a run beside the chosen one, or no more. */
  toggleMark(id: string): void {
    const marked = new Set(this._marked.size === 0 && this._chosen !== null ? [this._chosen] : this._marked);
    if (!marked.delete(id)) {
      marked.add(id);
    }
    // The chosen one alone is no choice of several.
    this.mark(marked.size === 1 && marked.has(this._chosen ?? '') ? [] : marked);
  }

  /** Choose what was chosen before a reload, as long as the server still has it. */
  restore(id: string): void {
    this._restoring = id;
  }

  /** Ask the server now. Never rejects: what went wrong is in `state`. */
  async refresh(): Promise<void> {
    clearTimeout(this._timer);
    const turn = ++this._turn;
    try {
      const list = await this.runs.listAll();
      if (turn !== this._turn || this._disposed) {
        return;
      }
      this._take(list);
    } catch (error) {
      if (turn !== this._turn || this._disposed) {
        return;
      }
      this._setState(listFault(error));
    }
    if (this._watching) {
      this._timer = setTimeout(() => void this.refresh(), this.options.refreshEvery);
    }
  }

  /** Rename a run, or write notes and tags to it, and show them. Rejects with the server's answer. */
  async describe(id: string, changes: RunChanges): Promise<void> {
    await this.runs.describe(id, changes);
    await this.refresh();
  }

  /** Delete a recording; whether its folder is gone, too. Rejects with the server's answer. */
  async remove(id: string): Promise<boolean> {
    const gone = await this.runs.remove(id);
    this._marked.delete(id);
    if (id === this._chosen) {
      this._setChosen(null);
    }
    await this.refresh();
    return gone;
  }

  /** Reach a hub elsewhere and choose its run. Rejects with the server's answer. */
  async connect(address: string, token: string, foreign: IForeignHub | null): Promise<void> {
    const entry = await this.runs.connect(address, token, foreign);
    await this.refresh();
    this.choose(entry.id);
  }

  /** Open a tree of raw-moment files, choose its first run, and return sentences on what was left out. */
  async openStatistics(path: string): Promise<readonly string[]> {
    const {
      runs: [first],
      warnings
    } = await this.runs.openStatistics(path);
    await this.refresh();
    if (first !== undefined) {
      this.choose(first.id);
    }
    return warnings;
  }

  get isDisposed(): boolean {
    return this._disposed;
  }

  /** Stop asking. Safe twice. */
  dispose(): void {
    this._disposed = true;
    this._watching = false;
    clearTimeout(this._timer);
    Signal.clearData(this);
  }

  private _take({ runs, warnings }: IRunList): void {
    const before = JSON.stringify([this._entries, this._state, this._chosen, this._warnings]);
    this._entries = ordered(runs);
    this._warnings = warnings;
    this._state = { kind: 'ready' };
    if (this._restoring !== null && !this._byHand && this._entries.some(({ id }) => id === this._restoring)) {
      this._chosen = this._restoring;
      this._byHand = true;
    }
    this._restoring = null;
    const live = this._entries.find(isTraining);
    if (!this._byHand && this.options.chooseNewest && this.chosen === null && live !== undefined) {
      this._chosen = live.id;
    }
    if (JSON.stringify([this._entries, this._state, this._chosen, this._warnings]) !== before) {
      this.changed.emit();
    }
  }

  private _setState(state: ListState): void {
    if (JSON.stringify(state) !== JSON.stringify(this._state)) {
      this._state = state;
      this.changed.emit();
    }
  }

  private _setChosen(id: string | null): void {
    if (id !== this._chosen) {
      this._chosen = id;
      this.changed.emit();
    }
  }

  private _entries: readonly IRunEntry[] = [];
  private _warnings: readonly string[] = [];
  private _state: ListState = { kind: 'loading' };
  private _chosen: string | null = null;
  private _marked = new Set<string>();
  private _restoring: string | null = null;
  private _byHand = false;
  private _watching = false;
  private _disposed = false;
  private _turn = 0;
  private _timer: ReturnType<typeof setTimeout> | undefined;
}

const isTraining = ({ state, ended, stopped }: IRunEntry): boolean =>
  state === 'live' && ended === null && stopped !== true;

/** The name of the job that a run is of. */
export const jobOf = ({ job, name }: IRunEntry): string => job ?? name;

/** Runs as they are listed: those that train first, then the newest; runs of one job stand together. */
function ordered(runs: readonly IRunEntry[]): IRunEntry[] {
  const sorted = [...runs].sort(
    (a, b) => Number(isTraining(b)) - Number(isTraining(a)) || b.started - a.started
  );
  const jobs = new Map<string, IRunEntry[]>();
  for (const run of sorted) {
    const job = jobOf(run);
    jobs.set(job, [...(jobs.get(job) ?? []), run]);
  }
  return [...jobs.values()].flat();
}

/** Read an error of the server as a state: refused, without Megalens, or not there. */
function listFault(error: unknown): ListState {
  const message = error instanceof Error ? error.message : String(error);
  const status = error instanceof ClientError ? error.status : undefined;
  switch (status) {
    case 401:
    case 403:
      return { kind: 'forbidden', message };
    case 404:
      return { kind: 'missing', message };
    default:
      return { kind: 'offline', message };
  }
}

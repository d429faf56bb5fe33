import { nullTranslator } from '@jupyterlab/translation';
import type { ICourses } from '../../../client/courses';
import type { CoursesRequest } from '../../../protocol/requests.generated';
import { ClientError } from '../../../client/rest';
import type { Hello } from '../../../protocol/messages.generated';
import type { ViewOptions } from '../../../protocol/views.generated';
import type { IMegalensRuns, IRunEntry, IRunSummary, RunChanges } from '../../../tokens';
import { beyondNewest } from '../../runs/keep-newest';
import type { IPanelHost, Json } from '../panel-host';
import { PanelModel } from '../panel-model';
import type { OpenPanelPart } from '../panel-part';
import { HELLO, ControlledRun } from './controlled-run';

const trans = nullTranslator.load('megalens');

export const LIVE: IRunEntry = {
  id: 'run-1',
  name: 'gpt-demo',
  state: 'live',
  started: 100,
  ended: null,
  step: 1240,
  folder: null
};
export const OLD: IRunEntry = {
  ...LIVE,
  id: 'run-0',
  name: 'tp2',
  state: 'recorded',
  started: 50,
  ended: 80,
  folder: 'megalens-runs/run-0'
};

export const STATISTICS: IRunEntry = {
  ...OLD,
  id: 'statistics-1',
  name: 'my-run',
  folder: 'runs/my-run',
  kind: 'statistics'
};

/** A service whose list the test writes, on runs held in memory. */
export class MemoryRuns implements IMegalensRuns {
  entries: IRunEntry[] = [LIVE, OLD];
  /** What is said to be left out of the list. */
  warnings: readonly string[] = [];
  fault: Error | null = null;
  /** What every run says of itself. */
  hello: Hello = HELLO;
  readonly opened = new Map<string, ControlledRun>();
  readonly released: string[] = [];

  async list(): Promise<readonly IRunEntry[]> {
    return (await this.listAll()).runs;
  }

  async listAll(): ReturnType<IMegalensRuns['listAll']> {
    if (this.fault !== null) {
      throw this.fault;
    }
    return { runs: this.entries, warnings: this.warnings };
  }

  async describe(id: string, changes: RunChanges): Promise<void> {
    this.entries = this.entries.map(entry => (entry.id === id ? { ...entry, ...changes } : entry));
  }

  /** Recordings in whose folder something else lies. */
  readonly shared = new Set<string>();

  async remove(id: string): Promise<boolean> {
    if (this.entries.find(entry => entry.id === id)?.state === 'live') {
      throw new ClientError('refused', 'The hub of this run is still there.', { status: 409 });
    }
    this.entries = this.entries.filter(entry => entry.id !== id);
    return !this.shared.has(id);
  }

  /** What the server says of each recording for the table. */
  readonly summed = new Map<string, IRunSummary>();

  async summaries(): Promise<ReadonlyMap<string, IRunSummary>> {
    return this.summed;
  }

  /** Courses of many runs, as the server would answer. */
  compared: Omit<ICourses, 'groups'> = {
    name: 'loss',
    names: [],
    steps: [],
    quantiles: [],
    counts: [],
    runs: []
  };

  async courses({ groups = [] }: CoursesRequest): Promise<ICourses> {
    const { quantiles } = this.compared;
    return {
      ...this.compared,
      groups: groups.map(({ name, runs }) => ({ name, runs: runs.length, quantiles }))
    };
  }

  async connect(): Promise<IRunEntry> {
    throw new ClientError('refused', 'This address is not allowed.', { status: 403 });
  }

  async openStatistics(path: string): ReturnType<IMegalensRuns['openStatistics']> {
    if (path === 'nothing') {
      throw new ClientError('refused', 'There are no raw-moment statistics in nothing.', { status: 404 });
    }
    this.entries = [...this.entries, STATISTICS];
    const warnings = path === 'half' ? ['half/b cannot be looked into: Permission denied.'] : [];
    return { runs: [STATISTICS], warnings };
  }

  async demo(): ReturnType<IMegalensRuns['demo']> {
    return { kind: 'idle' };
  }

  async report(): ReturnType<IMegalensRuns['report']> {
    return { name: 'gpt-demo.html', content: new Blob(['<html>']) };
  }

  async acquire(id: string): ReturnType<IMegalensRuns['acquire']> {
    const source = new ControlledRun(structuredClone(this.hello));
    if (this.entries.find(entry => entry.id === id)?.state === 'recorded') {
      source.connection = { kind: 'recorded' };
    }
    this.opened.set(id, source);
    return { source, dispose: () => this.released.push(id) };
  }
}

/** The panel's model on runs held in memory. */
export function setUp(
  parts: readonly OpenPanelPart[] = [],
  /** What the windows of a page know together. */
  notes = new Map<string, Json>()
): {
  runs: MemoryRuns;
  model: PanelModel;
  host: jest.Mocked<IPanelHost>;
  opened: [string, ViewOptions][];
} {
  const runs = new MemoryRuns();
  const opened: [string, ViewOptions][] = [];
  // The host is JupyterLab's own dialogs and clipboard, which the browser tests go through.
  const host = {
    openView: jest.fn(async (run: string, options: ViewOptions) => void opened.push([run, options])),
    tileViews: jest.fn(),
    openViews: jest.fn(() => [] as readonly ViewOptions[]),
    copy: jest.fn(),
    revealFolder: jest.fn(),
    reloadPage: jest.fn(),
    askReport: jest.fn(async (_run, views) => ({ format: 'html' as const, views })),
    askStatistics: jest.fn(async (): Promise<string | null> => 'runs'),
    askHub: jest.fn(async () => ({ address: 'ws://127.0.0.1:1', token: 't', foreign: null })),
    askName: jest.fn(async () => 'renamed'),
    askNotes: jest.fn(async () => ({ notes: 'warmup 200', tags: ['baseline'] })),
    askDelete: jest.fn(async () => true),
    askKeepNewest: jest.fn(async (entries: readonly IRunEntry[]) => beyondNewest(entries, 3)),
    openRuns: jest.fn(async () => undefined),
    share: jest.fn((name: string, change: (before: Json | null) => Json | null) => {
      const next = change(notes.get(name) ?? null);
      if (next !== null) {
        notes.set(name, next);
      }
    }),
    warn: jest.fn(),
    alarm: jest.fn(),
    save: jest.fn(),
    tell: jest.fn(async () => undefined),
    progress: jest.fn((_label: string, work: Promise<unknown>) => work),
    remember: jest.fn()
  } as unknown as jest.Mocked<IPanelHost>;
  return { runs, host, opened, model: new PanelModel(runs, host, trans, undefined, parts) };
}

import type { TranslationBundle } from '@jupyterlab/translation';
import { Signal, type ISignal } from '@lumino/signaling';
import { own } from '../../protocol/records';
import { reportViews, viewInfo, viewInfos } from '../../protocol/view-info';
import type { ViewOptions } from '../../protocol/views.generated';
import type { IViewInfo } from '../../protocol/view-descriptor';
import type { IRunSource, SourceChange } from '../../store/source';
import type { IMegalensRuns, IRunLease, IViewReference } from '../../tokens';
import { nonFiniteView } from '../../views/overview/non-finite-view';
import { DemoModel } from '../runs/demo-model';
import { RunActions } from '../runs/run-actions';
import { RunsModel, type CompareAs, type IRunsModelOptions } from '../runs/runs-model';
import { isAvailable } from '../../views/shared/forecast';
import { Coalesced } from './source-model';
import {
  ENABLE_COMMAND,
  listNotice,
  RECORD_SNIPPET,
  runNotice,
  SNIPPET,
  UPDATE_COMMAND,
  type INotice,
  type NoticeAction
} from './notice';
import { hasRows, openRun, partsOf, type IOpenRun } from './open-run';
import { panelCode } from './panel-code';
import type { IPanelHost } from './panel-host';
import type { IPanelPart, OpenPanelPart } from './panel-part';

const HELLO_WITHIN = 5000;

/** Resolves when a run has said what it is or will not say it any more, after five seconds at the latest. */
async function helloOf(source: IRunSource): Promise<void> {
  if (source.hello !== null || source.connection.kind === 'closed') {
    return;
  }
  await new Promise<void>(resolve => {
    const done = () => {
      clearTimeout(timer);
      source.changed.disconnect(look);
      resolve();
    };
    const look = () => {
      if (source.hello !== null || source.connection.kind === 'closed') {
        done();
      }
    };
    const timer = setTimeout(done, HELLO_WITHIN);
    source.changed.connect(look);
  });
}

/** The panel's whole state. Components read it and call it; they hold no logic of their own. */
export class PanelModel {
  constructor(
    private readonly service: IMegalensRuns,
    readonly host: IPanelHost,
    readonly trans: TranslationBundle,
    options?: IRunsModelOptions,
    parts: readonly OpenPanelPart[] = []
  ) {
    this.runs = new RunsModel(service, options);
    this.runs.changed.connect(this._onRuns, this);
    this.actions = new RunActions(service, this.runs, host, trans);
    this.parts = parts.map(open => open({ host, trans, setting: name => this.setting(name) }));
    this.demo = new DemoModel(service, () => void this.runs.refresh());
    this.demo.changed.connect(this._emit, this);
  }

  readonly runs: RunsModel;
  readonly actions: RunActions;
  readonly demo: DemoModel;
  setting: (name: string) => unknown = () => undefined;

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get open(): IOpenRun | null {
    return this._open;
  }

  get listNotice(): INotice | null {
    return listNotice(this.runs.state, this.runs.entries, this.trans);
  }

  get runNotice(): INotice | null {
    if (this._openFault !== null) {
      return {
        tone: 'error',
        sentence: this.trans.__('This run could not be opened.'),
        detail: this._openFault,
        action: { id: 'reopen', label: this.trans.__('Try again') }
      };
    }
    const open = this._open;
    return open === null ? null : runNotice(open, this.runs.chosen, this.trans);
  }

  /** Whether the panel is looked at: only then is the server asked and are times counted. */
  set visible(on: boolean) {
    this.runs.watching = on;
    this.demo.watching = on;
    clearInterval(this._clock);
    if (on) {
      this._clock = setInterval(() => {
        if (this._open?.source.connection.kind === 'stale') {
          this._changed.emit();
        }
      }, 1000);
    }
  }

  /** Resolves when the chosen run has sent its hello, or none is chosen. For commands in a hidden panel. */
  async ready(): Promise<void> {
    if (this._open === null) {
      await this.runs.refresh();
      await this._opening;
    }
    if (this._open !== null) {
      await helloOf(this._open.source);
    }
  }

  async act(action: NoticeAction): Promise<void> {
    switch (action) {
      case 'retry':
        return this.runs.refresh();
      case 'reload-page':
        return this.host.reloadPage();
      case 'copy-snippet':
        return this.host.copy(`import megalens\n${SNIPPET}`);
      case 'copy-update':
        return this.host.copy(UPDATE_COMMAND);
      case 'copy-enable':
        return this.host.copy(ENABLE_COMMAND);
      case 'copy-record':
        return this.host.copy(RECORD_SNIPPET);
      case 'open-recording':
      case 'reopen':
        await this.runs.refresh();
        return this._reopen();
      case 'close-run':
        return this.runs.choose(null);
      case 'trace-first': {
        const first = this._open?.source.hello?.flags.find(isAvailable);
        return first && this._open?.trace.toggle(first.name, true);
      }
      case 'open-scalars':
        return this.openScalars();
      case 'export-report':
        return this.exportReport();
      case 'show-ranks':
        return this._open?.ranks.unfold();
    }
  }

  /** A view of the chosen run on what is traced now, or null where there is nothing to show. */
  viewOf(view: string, options: Partial<ViewOptions> = {}): IViewReference | null {
    const open = this._open;
    if (open === null) {
      return null;
    }
    const { group, needs, first, phases } = viewInfo(view) ?? {};
    const ofPhase = own(phases ?? {}, open.source.hello?.phase ?? 'train');
    // One that is open stays as it was left.
    const isOpen = this.host.openViews(open.id).some(each => each.view === view);
    const known = { view, ...(isOpen ? {} : { ...first, ...ofPhase }), ...options } as ViewOptions;
    if (needs?.flag !== true) {
      return { run: open.id, options: known };
    }
    // Of a text, what is traced while one is written.
    const phase = group === 'text' ? 'generate' : (open.source.hello?.phase ?? 'train');
    const traced = Object.entries(open.trace.config.flags);
    const [flag] = traced.find(([, { phases = ['train'] }]) => phases.includes(phase)) ??
      traced[0] ?? [open.source.hello?.flags.find(isAvailable)?.name];
    return flag === undefined ? null : { run: open.id, options: { flag, ...known } as ViewOptions };
  }

  /** Open a view of the chosen run on what is traced now. */
  async openView(view: string, options: Partial<ViewOptions> = {}): Promise<void> {
    if (this._open === null) {
      // While a run is opened anew, the buttons of before are still there: a click on one is for the run that
      // comes.
      await this.ready();
    }
    const found = this.viewOf(view, options);
    if (found !== null) {
      await this.host.openView(found.run, found.options);
      this._open?.instruments.forEach(part => part.opened?.(view));
    }
  }

  /** Show the first three views that are looked at together and have something to show, side by side. */
  async arrange(together: IViewInfo['together']): Promise<void> {
    const open = this._open;
    if (open !== null) {
      const found = viewInfos()
        .filter(info => info.together === together && info.needs.streams.every(each => hasRows(open, each)))
        .flatMap(({ name }) => this.viewOf(name)?.options ?? []);
      await this.host.tileViews(open.id, found.slice(0, 3));
    }
  }

  /** Open the view of the stream that the loss is in. */
  async openScalars(): Promise<void> {
    const view = viewInfos().find(({ needs }) => needs.streams.includes('scalars'));
    return view && this.openView(view.name);
  }

  /** Show the first value of traced tensors, or of statistics, that was not finite. */
  async openNonFinite(of: 'tensors' | 'moments' = 'tensors'): Promise<void> {
    const options = nonFiniteView(this._open?.source.status ?? null, of);
    if (this._open !== null && options !== null) {
      await this.host.openView(this._open.id, options);
    }
  }

  /** Open a view that compares runs: of the first, with the others beside it. */
  async compare(view: string, compare: CompareAs, ids: readonly string[] = this.runs.marked): Promise<void> {
    const [base, ...runs] = ids;
    if (base === undefined) {
      return;
    }
    if (base !== this.runs.chosenId) {
      this.runs.choose(base);
      this.runs.mark(ids);
    }
    await this._opening;
    await this.ready();
    await this.openView(view, { runs, compare } as Partial<ViewOptions>);
  }

  /** Ask what a report of a run shall hold, and have it made. */
  async exportReport(run = this.runs.chosenId, views = this.reportViews()): Promise<void> {
    const entry = this.runs.entries.find(({ id }) => id === run);
    return entry && this.actions.exportReport(entry, views);
  }

  /** Views that a report can hold: the open ones, or else one of each kind on what is traced. */
  reportViews(): readonly ViewOptions[] {
    const open = this._open;
    if (open === null) {
      return [];
    }
    const views = this.host.openViews(open.id);
    if (views.length > 0) {
      return views;
    }
    const files = this.runs.chosen?.kind === 'statistics';
    const fits = (stream: string): boolean => (files ? stream === 'moments' : hasRows(open, stream));
    return reportViews(fits, Object.keys(open.trace.config.flags).slice(0, 3), open.source.hello?.phase);
  }

  /** Python that does in a cell what the panel shows. */
  code(): string {
    const open = this._open;
    const entry = this.runs.chosen;
    return open === null || entry === null
      ? ''
      : panelCode(
          entry,
          open.trace.config,
          this.host.openViews(open.id),
          open.source.hello?.compressors ?? []
        );
  }

  copyCode(): void {
    this.host.copy(this.code());
  }

  get isDisposed(): boolean {
    return this._disposed;
  }

  /** Let go of the run and stop asking. Safe twice. */
  dispose(): void {
    this._disposed = true;
    clearInterval(this._clock);
    this._gate.dispose();
    this._close();
    this.runs.dispose();
    this.demo.dispose();
    this.parts.forEach(part => part.dispose());
    Signal.clearData(this);
  }

  private _onRuns(): void {
    const id = this.runs.chosenId;
    if (id !== this._wanted) {
      // The newest live run is chosen anew after a reload; only a person's choice outlives it.
      if (this.runs.chosenByHand) {
        this.host.remember(id);
      }
      this._opening = this._openRun(id);
    }
    this._changed.emit();
  }

  private async _reopen(): Promise<void> {
    this._wanted = null;
    this._opening = this._openRun(this.runs.chosenId);
    await this._opening;
  }

  private async _openRun(id: string | null): Promise<void> {
    this._wanted = id;
    this._close();
    const turn = ++this._turn;
    if (id === null) {
      this._changed.emit();
      return;
    }
    try {
      const lease = await this.service.acquire(id);
      if (turn !== this._turn || this._disposed) {
        lease.dispose();
        return;
      }
      this._take(id, lease);
    } catch (error) {
      if (turn === this._turn) {
        this._openFault = error instanceof Error ? error.message : String(error);
      }
    }
    this._changed.emit();
  }

  private _take(id: string, lease: IRunLease): void {
    const { source } = lease;
    const open = openRun(id, source, this.parts);
    source.changed.connect(this._onSource, this);
    for (const part of partsOf(open)) {
      part.changed.connect(this._emit, this);
    }
    this._open = open;
    this._lease = lease;
  }

  private _close(): void {
    const open = this._open;
    this._open = null;
    this._openFault = null;
    open?.source.changed.disconnect(this._onSource, this);
    if (open !== null) {
      partsOf(open).forEach(part => part.dispose());
    }
    this._lease?.dispose();
    this._lease = null;
  }

  private _onSource(_: IRunSource, change: SourceChange): void {
    if (change.kind === 'connection') {
      // The list says sooner than its next turn whether a recording is there.
      if (this._open?.source.connection.kind === 'closed') {
        void this.runs.refresh();
      }
    }
    if (change.kind !== 'rows') {
      this._gate.note();
    }
  }

  private _emit(): void {
    this._changed.emit();
  }

  private readonly parts: readonly IPanelPart[];
  private readonly _changed = new Signal<this, void>(this);
  private readonly _gate = new Coalesced(() => this._changed.emit());
  private _open: IOpenRun | null = null;
  private _openFault: string | null = null;
  private _lease: IRunLease | null = null;
  private _wanted: string | null = null;
  private _opening: Promise<void> = Promise.resolve();
  private _turn = 0;
  private _disposed = false;
  private _clock: ReturnType<typeof setInterval> | undefined;
}

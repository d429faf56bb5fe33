import { Signal, type ISignal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';
import { JSONExt } from '@lumino/coreutils';
import { boundedText, fullViewOptions, type FullViewOptions, type ViewOptions } from '../protocol';
import type { Hello } from '../protocol/messages.generated';
import type { IRunSource, SourceChange } from '../store/source';
import { ArmedChip } from '../views/mount/cursor';
import { copyText } from '../views/mount/dom';
import { faultSentence, faultText } from '../views/shared/fault-text';
import { notice, type IOutputNotice, ENGLISH, type IWidgetRuns, type IWords } from './runs';
import type { IRunReference } from './view-json';
import { translateBy } from '../views/shared/translate';

/** A mounted view, as far as a cell needs it. What `src/views` returns fits as it is. */
export interface IMountedView {
  readonly options: ViewOptions;
  readonly changed: ISignal<unknown, unknown>;
  update(options: ViewOptions): unknown;
  toSVG(): Promise<string>;
  dispose(): void;
}

/** Draws a view into a node. `runs` are those that it may compare with. */
export type MountView = (
  node: HTMLElement,
  source: IRunSource,
  options: ViewOptions,
  words: IWords,
  runs: IWidgetRuns
) => Promise<IMountedView>;

export interface IViewHostOptions {
  readonly runs: IWidgetRuns;
  readonly run: IRunReference;
  readonly options: FullViewOptions;
  /** Names of saved options that could not be read and have their defaults. */
  readonly dropped?: readonly string[];
  readonly mount: MountView;
  readonly words?: IWords;
  /** Where the run's folder is below the server's root, as far as the page can tell. */
  readonly folder?: () => Promise<string | null>;
  /** The picture that was saved with the notebook, as SVG text: shown while the run itself cannot be. */
  readonly picture?: string | null;
  /** How long to wait between looks for the recording of a run that ended, in milliseconds. */
  readonly retryEvery?: number;
}

const RETRY_MS = 1500;
const RETRIES = 8;

/**
 * One view of one run in a cell: takes a share in the run, mounts the view, and says so where it cannot.
 *
 * When a live run ends or its hub goes, the recorded run of the same id takes its place as soon as the server
 * has it.
 */
export class ViewHost extends Widget {
  constructor(options: IViewHostOptions) {
    super();
    this.addClass('jp-MegalensCellView');
    this._setup = options;
    this._words = options.words ?? ENGLISH;
    this._options = options.options;
    void this._start();
  }

  /** The options as the person sees them drawn. */
  get options(): FullViewOptions {
    return this._options;
  }

  get runName(): string {
    return this._setup.run.name;
  }

  /** What its run announced, once it did. */
  get hello(): Hello | null {
    return this._lease?.source.hello ?? null;
  }

  /**
   * Change the options from outside. The same options again change nothing.
   *
   * @throws {ProtocolError} When an option is not as the contract says; names the field, and nothing has
   * changed.
   */
  setOptions(options: unknown): void {
    const full = fullViewOptions(options);
    if (!JSONExt.deepEqual(full, this._options)) {
      this._options = full;
      this._view?.update(full);
    }
  }

  /** Draw what is shown as SVG text, or null when no view is mounted. */
  async toSVG(): Promise<string | null> {
    return this._view ? this._view.toSVG() : null;
  }

  override dispose(): void {
    if (this.isDisposed) {
      return;
    }
    this._release();
    clearTimeout(this._timer);
    Signal.clearData(this);
    super.dispose();
  }

  private async _start(): Promise<void> {
    const turn = ++this._turn;
    const { runs, run, mount } = this._setup;
    if (!this._view) {
      this._say(this._words.__('Connecting to %1…', run.name));
    }
    let opened = false;
    try {
      const lease = await this._acquire();
      if (turn !== this._turn || this.isDisposed) {
        lease.dispose();
        return;
      }
      if (this._view && lease.source === this._lease?.source) {
        lease.dispose();
        return;
      }
      this._release();
      this._turn = turn;
      this._lease = lease;
      opened = true;
      const node = document.createElement('div');
      node.className = 'jp-MegalensCellView-body';
      this._armed = new ArmedChip(lease.source, translateBy(this._words));
      this.node.replaceChildren(...this._droppedNotice(), this._armed.node, node);
      const view = await mount(node, lease.source, this._options, this._words, runs);
      if (turn !== this._turn || this.isDisposed) {
        view.dispose();
        return;
      }
      this._view = view;
      view.changed.connect(this._onViewChanged, this);
      lease.source.changed.connect(this._onSourceChanged, this);
      // The options may have been changed from outside while the view was being loaded.
      view.update(this._options);
      this._onSourceChanged();
      this.mounted.emit();
    } catch (error) {
      if (turn === this._turn && !this.isDisposed) {
        this._release();
        if (opened) {
          this._sayFault(error);
          return;
        }
        const reason = faultSentence(error);
        this._say(
          run.kind === 'statistics'
            ? this._words.__(
                'The statistics of %1 cannot be shown now. Open their files in the Megalens panel: “Open files…”.',
                run.name
              )
            : this._words.__(
                'Run %1 cannot be shown now. Start it again, or put its folder back where Jupyter lists recorded runs.',
                run.name
              ),
          reason
        );
      }
    }
  }

  /** Share in the run. Files that a kernel opened are not known to the server: it is given their path. */
  private async _acquire(): ReturnType<IWidgetRuns['acquire']> {
    const { runs, run, folder } = this._setup;
    try {
      return await runs.acquire(run.id);
    } catch (error) {
      const path = run.kind === 'statistics' && folder !== undefined ? await folder() : null;
      if (path === null || runs.openStatistics === undefined) {
        throw error;
      }
      await runs.openStatistics(path);
      return runs.acquire(run.id);
    }
  }

  private _onViewChanged(): void {
    const options = this._view && fullViewOptions(this._view.options);
    if (options && !JSONExt.deepEqual(options, this._options)) {
      this._options = options;
      this.optionsChanged.emit(options);
    }
  }

  private _onSourceChanged(_?: IRunSource, change?: SourceChange): void {
    if (change?.kind === 'hello') {
      this.introduced.emit();
    }
    const connection = this._lease?.source.connection;
    if (connection?.kind !== 'closed') {
      this._tries = 0;
    } else if ((connection.reason === 'gone' || connection.reason === 'finished') && this._tries === 0) {
      this._seekRecording();
    }
  }

  /** Look a few times whether the server has the recording of a run that ended, and then show that. */
  private _seekRecording(): void {
    if (this._tries++ >= RETRIES) {
      return;
    }
    this._timer = setTimeout(() => {
      void this._setup.runs.list().then(
        entries => {
          if (this.isDisposed) {
            return;
          }
          const entry = entries.find(({ id }) => id === this._setup.run.id);
          if (entry && entry.state !== 'live') {
            void this._start();
          } else {
            this._seekRecording();
          }
        },
        () => this.isDisposed || this._seekRecording()
      );
    }, this._setup.retryEvery ?? RETRY_MS);
  }

  private _say(sentence: string, detail?: string): void {
    const retry = { label: this._words.__('Try again'), run: () => void this._start() };
    this._notify({ sentence, detail, actions: detail === undefined ? [] : [retry] });
  }

  /**
   * The run is there, and its view failed while it was made: say what, and offer it with its default options.
   */
  private _sayFault(error: unknown): void {
    const { view } = this._options;
    this._notify({
      sentence: this._words.__(
        'This view could not be drawn. Its run is not affected. Reset tries again with the default options.'
      ),
      detail: faultSentence(error),
      actions: [
        { label: this._words.__('Reset'), run: () => this._reset() },
        {
          label: this._words.__('Copy details'),
          run: () => void copyText(faultText(`view ${view}`, error)).catch(() => undefined)
        }
      ]
    });
  }

  private _reset(): void {
    const { view, ...rest } = this._options;
    this._options = fullViewOptions({ view, ...('flag' in rest ? { flag: rest.flag } : {}) });
    this.optionsChanged.emit(this._options);
    void this._start();
  }

  /** One line over the view about saved options that could not be read. */
  private _droppedNotice(): HTMLElement[] {
    const { dropped = [] } = this._setup;
    if (dropped.length === 0 || this._isNoted) {
      return [];
    }
    const names = dropped.map(name => boundedText(name, 40)).join(', ');
    const node = notice({
      sentence: this._words.__(
        'Some saved options of this view could not be read and have their defaults: %1.',
        boundedText(names, 200)
      ),
      actions: [
        {
          label: this._words.__('Dismiss'),
          run: () => {
            this._isNoted = true;
            node.remove();
          }
        }
      ],
      alt: ''
    });
    return [node];
  }

  private _notify(said: Pick<IOutputNotice, 'sentence' | 'detail' | 'actions'>): void {
    this.node.replaceChildren(
      notice({ ...said, picture: this._setup.picture, alt: this._words.__('Saved picture') })
    );
  }

  private _release(): void {
    this._turn++;
    this._view?.changed.disconnect(this._onViewChanged, this);
    this._lease?.source.changed.disconnect(this._onSourceChanged, this);
    this._view?.dispose();
    this._armed?.dispose();
    this._lease?.dispose();
    this._view = null;
    this._armed = null;
    this._lease = null;
  }

  private readonly _setup: IViewHostOptions;
  private readonly _words: IWords;
  /** Emitted when the person changed the options in the view itself. */
  readonly optionsChanged = new Signal<this, FullViewOptions>(this);
  /** Emitted when the run has sent its hello. */
  readonly introduced = new Signal<this, void>(this);
  /** Emitted each time the view has been mounted on a source. */
  readonly mounted = new Signal<this, void>(this);
  private _options: FullViewOptions;
  private _view: IMountedView | null = null;
  private _armed: ArmedChip | null = null;
  private _lease: { readonly source: IRunSource; dispose(): void } | null = null;
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _isNoted = false;
  private _turn = 0;
  private _tries = 0;
}

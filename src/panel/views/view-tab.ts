import { MainAreaWidget } from '@jupyterlab/apputils';
import type { ISignal } from '@lumino/signaling';
import { Signal } from '@lumino/signaling';
import type { Widget } from '@lumino/widgets';
import type { ViewOptions } from '../../protocol/views.generated';
import type { IViewReference } from '../../tokens';
import { LazyPanel } from '../shell/lazy-panel';

/** The widget that draws a view and lets its options be changed from both sides. */
export interface IViewWidget extends Widget {
  readonly options: ViewOptions;
  readonly optionsChanged: ISignal<unknown, ViewOptions>;
  readonly runName: string;
  setOptions(options: ViewOptions): void;
}

/** What a tab is made of. */
export interface IViewTabOptions extends IViewReference {
  /** Stable over reloads. */
  id: string;
  /** Makes the widget when the tab is first shown; `frame` is what it will fill. */
  create: (reference: IViewReference, frame: HTMLElement) => Promise<IViewWidget>;
  sayFailure: (reason: unknown) => string;
  /** What the buttons beside a failure say. */
  words: { readonly again: string; readonly copy: string };
}

/** One view of one run in the main area. It remembers its options while it is not drawn. */
export class ViewTab extends MainAreaWidget<LazyPanel<IViewWidget>> implements IViewReference {
  constructor({ id, run, options, create, sayFailure, words }: IViewTabOptions) {
    super({
      content: new LazyPanel(
        async () => {
          const widget = await create({ run, options: this._options }, this.content.node);
          widget.optionsChanged.connect((_, changed) => this._take(changed));
          this._runName = widget.runName;
          this._named.emit();
          return widget;
        },
        sayFailure,
        words
      )
    });
    this.id = id;
    this.run = run;
    this._options = options;
    this.addClass('jp-MegalensViewTab');
    this.title.closable = true;
    // The view has a toolbar of its own.
    this.toolbar.hide();
  }

  readonly run: string;

  get options(): ViewOptions {
    return this._options;
  }

  /** What its run is called; the run's id before that is known. */
  get runName(): string {
    return this._runName ?? this.run;
  }

  /** Emitted when it is known what the run is called. */
  get named(): ISignal<this, void> {
    return this._named;
  }

  /** Emitted when the options change, whoever changed them. */
  get optionsChanged(): ISignal<this, ViewOptions> {
    return this._optionsChanged;
  }

  /** Change the options from outside. Rejects when they are not as the contract says, and nothing has changed then. */
  async setOptions(options: ViewOptions): Promise<void> {
    (await this.content.content()).setOptions(options);
    this._take(options);
  }

  private _take(options: ViewOptions): void {
    this._options = options;
    this._optionsChanged.emit(options);
  }

  private _runName: string | null = null;
  private readonly _named = new Signal<this, void>(this);
  private readonly _optionsChanged = new Signal<this, ViewOptions>(this);
  private _options: ViewOptions;
}

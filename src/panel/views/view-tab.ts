import { MainAreaWidget } from '@jupyterlab/apputils';
import type { ISignal } from '@lumino/signaling';
import { Signal } from '@lumino/signaling';
import type { Widget } from '@lumino/widgets';
import type { Hello } from '../../protocol/messages.generated';
import type { ViewOptions } from '../../protocol/views.generated';
import type { IViewReference } from '../../tokens';
import { LazyPanel } from '../shell/lazy-panel';

/** The widget that draws a view and lets its options be changed from both sides. */
export interface IViewWidget extends Widget {
  readonly options: ViewOptions;
  readonly optionsChanged: ISignal<unknown, ViewOptions>;
  readonly runName: string;
  /** What the view's run says of itself, once it did. */
  readonly hello?: Hello | null;
  /** Emitted each time the view has been mounted on a source. */
  readonly mounted?: ISignal<unknown, void>;
  /** Emitted when the run has said of itself what it is. */
  readonly introduced?: ISignal<unknown, void>;
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
          this._widget = widget;
          for (const signal of [widget.mounted, widget.introduced]) {
            signal?.connect(() => this._named.emit());
          }
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
    return this._widget?.runName ?? this.run;
  }

  /** What its run calls a flag in words; its name before that is known. */
  flagTitle(flag: string): string {
    return this._widget?.hello?.flags.find(({ name }) => name === flag)?.title ?? flag;
  }

  /** Emitted when it is known what the run and its flags are called. */
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

  private _widget: IViewWidget | null = null;
  private readonly _named = new Signal<this, void>(this);
  private readonly _optionsChanged = new Signal<this, ViewOptions>(this);
  private _options: ViewOptions;
}

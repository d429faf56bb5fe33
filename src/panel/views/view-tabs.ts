import { MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { UUID, type ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { type ISignal, Signal } from '@lumino/signaling';
import type { Widget } from '@lumino/widgets';
import { viewInfo } from '../../protocol/view-info';
import { renamed } from '../../protocol/view-options';
import type { ViewOptions } from '../../protocol/views.generated';
import { faultSentence } from '../../views/shared/fault-text';
import type { IViewReference, IMegalensViews } from '../../tokens';
import type { Hello } from '../../protocol/messages.generated';
import { viewIcon } from '../shell/commands';
import { LazyPanel } from '../shell/lazy-panel';
import { titleWords } from '../../views/shared/describe';
import { translateBy } from '../../views/shared/translate';

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

interface IViewTabOptions extends IViewReference {
  id: string;
  /** Makes the widget when the tab is first shown; `frame` is what it will fill. */
  create: (reference: IViewReference, frame: HTMLElement) => Promise<IViewWidget>;
  sayFailure: (reason: unknown) => string;
  /** What the buttons beside a failure say. */
  words: { readonly again: string; readonly copy: string };
}

/** One view of one run in the main area. It remembers its options while it is not drawn. */
class ViewTab extends MainAreaWidget<LazyPanel<IViewWidget>> implements IViewReference {
  constructor({ id, run, options, create, sayFailure, words }: IViewTabOptions) {
    super({
      content: new LazyPanel(
        async () => {
          const widget = await create({ run, options: this._options }, this.content.node);
          widget.optionsChanged.connect((_, changed) => this._take(changed));
          this._widget = widget;
          for (const signal of [widget.mounted, widget.introduced]) {
            signal?.connect(() => this.named.emit());
          }
          this.named.emit();
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
  readonly named = new Signal<this, void>(this);

  /** Emitted when the options change, whoever changed them. */
  readonly optionsChanged = new Signal<this, ViewOptions>(this);

  /** Change the options from outside. Rejects, and changes nothing, when they do not fit the contract. */
  async setOptions(options: ViewOptions): Promise<void> {
    (await this.content.content()).setOptions(options);
    this._take(options);
  }

  private _take(options: ViewOptions): void {
    this._options = options;
    this.optionsChanged.emit(options);
  }

  private _widget: IViewWidget | null = null;
  private _options: ViewOptions;
}

type ViewPlacing = 'split-right' | 'split-bottom';

/** What the tabs need of the application. */
export interface IViewTabsOptions {
  /** Put a tab into the work area: with the tab `near` where there is one, or at a side of it. */
  add: (widget: ViewTab, near: string | null, mode: ViewPlacing | null) => void;
  activate: (id: string) => void;
  create: IViewTabOptions['create'];
  preload: () => Promise<void>;
  trans: TranslationBundle;
}

export class ViewTabs implements IMegalensViews {
  constructor(private readonly options: IViewTabsOptions) {
    this.tracker.widgetAdded.connect(() => this.changed.emit());
    this.tracker.currentChanged.connect(() => this.changed.emit());
  }

  readonly tracker = new WidgetTracker<ViewTab>({ namespace: 'megalens-views' });

  readonly changed = new Signal<this, void>(this);

  get current(): IViewReference | null {
    const tab = this.tracker.currentWidget;
    return tab === null ? null : { run: tab.run, options: tab.options };
  }

  at(id: string): IViewReference | null {
    const tab = this.tracker.find(each => each.id === id);
    return tab === undefined ? null : { run: tab.run, options: tab.options };
  }

  of(run: string): readonly ViewOptions[] {
    const options: ViewOptions[] = [];
    this.tracker.forEach(tab => {
      if (tab.run === run) {
        options.push(tab.options);
      }
    });
    return options;
  }

  async open(run: string, options: ViewOptions): Promise<void> {
    await this._show(run, options, this.tracker.currentWidget?.id ?? null);
  }

  async tile(run: string, views: readonly ViewOptions[]): Promise<void> {
    let near = this.tracker.currentWidget?.id ?? null;
    for (const [at, options] of views.entries()) {
      near = await this._show(run, options, near, (['', 'split-right', 'split-bottom'] as const)[at] || null);
    }
  }

  /** Show a view in a tab: the one that is about the same, which is moved where a place is asked for. */
  private async _show(
    run: string,
    saved: ViewOptions,
    near: string | null,
    mode: ViewPlacing | null = null
  ): Promise<string> {
    const options = renamed(saved);
    const same = this.tracker.find(tab => tab.run === run && subjectOf(tab.options) === subjectOf(options));
    if (same === undefined) {
      return this._add(`megalens-view-${UUID.uuid4()}`, run, options, near, mode);
    }
    if (mode !== null && near !== same.id) {
      this.options.add(same, near, mode);
    }
    this.options.activate(same.id);
    await same.setOptions({ ...same.options, ...options } as ViewOptions);
    return same.id;
  }

  preload(): void {
    this._preloading ??= this.options.preload().catch(() => {
      this._preloading = null;
    });
  }

  /** Open what a layout was saved with; a tab that is there already stays. */
  restore(args: ReadonlyPartialJSONObject): void {
    const { id, run, options } = args;
    if (typeof run !== 'string' || typeof options !== 'object' || options === null) {
      throw new Error('A view needs a run id and its options: {run, options}.');
    }
    const known = typeof id === 'string' && this.tracker.find(tab => tab.id === id) !== undefined;
    if (!known) {
      this._add(
        typeof id === 'string' ? id : `megalens-view-${UUID.uuid4()}`,
        run,
        renamed(options) as unknown as ViewOptions
      );
    }
  }

  private _add(
    id: string,
    run: string,
    options: ViewOptions,
    near = this.tracker.currentWidget?.id ?? null,
    mode: ViewPlacing | null = null
  ): string {
    const { trans, add, activate, create } = this.options;
    const tab = new ViewTab({
      id,
      run,
      options,
      create,
      sayFailure: reason => trans.__('This view could not be loaded: %1', faultSentence(reason)),
      words: { again: trans.__('Try again'), copy: trans.__('Copy details') }
    });
    tab.title.icon = viewIcon(viewInfo(options.view) ?? {});
    tab.optionsChanged.connect(() => {
      this._name();
      void this.tracker.save(tab);
      this.changed.emit();
    });
    tab.named.connect(() => this._name());
    tab.disposed.connect(() => {
      this._name();
      this.changed.emit();
    });
    void this.tracker.add(tab);
    this._name();
    add(tab, near, mode);
    activate(id);
    return id;
  }

  /**
   * Call each tab by what it is about, which is what a narrow tab has room for, then its run where there are
   * tabs of several, and its view.
   */
  private _name(): void {
    const tabs = this.tracker.filter(tab => !tab.isDisposed);
    const several = new Set(tabs.map(({ run }) => run)).size > 1;
    for (const tab of tabs) {
      const { options, runName } = tab;
      const t = translateBy(this.options.trans);
      const view = this.options.trans.__(viewInfo(options.view)?.title ?? options.view);
      const subject = shortSubject(options, flag => titleWords(tab.flagTitle(flag), t));
      tab.title.label = [...subject, ...(several ? [runName] : []), view].join(' · ');
      tab.title.caption = this.options.trans.__('%1 of run %2', [view, ...subject].join(' · '), runName);
    }
  }

  private _preloading: Promise<void> | null = null;
}

/** What options choose of a view, in few letters: `L9 MLP output`, `loss +2`, `grad l2`; empty if nothing. */
function shortSubject(options: ViewOptions, flagTitle: (flag: string) => string): string[] {
  const of: Readonly<Record<string, unknown>> = { ...options };
  const layer = /^\d+$/.exec(String(of['layer'] ?? of['layers'] ?? ''))?.[0];
  const names = Array.isArray(of['names']) ? of['names'].map(String) : [];
  const words = [
    ...(layer === undefined ? [] : [`L${layer}`]),
    ...('flag' in options ? [flagTitle(options.flag)] : []),
    ...names.slice(0, 1),
    ...(names.length > 1 ? [`+${names.length - 1}`] : []),
    ...(typeof of['generation'] === 'number' ? [`text ${of['generation']}`] : []),
    ...(of['rule'] ? [String(of['rule'])] : []),
    ...(of['stat'] === undefined ? [] : [of['stat'], of['statistic'] ?? ''].map(String))
  ];
  const subject = words.filter(Boolean).join(' ');
  return subject === '' ? [] : [subject];
}

/** What a view is about: tabs with the same subject are one. */
function subjectOf(options: ViewOptions): string {
  return 'flag' in options ? `${options.view} ${options.flag}` : options.view;
}

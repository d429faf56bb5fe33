import { WidgetTracker } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { LabIcon } from '@jupyterlab/ui-components';
import { UUID, type ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { Signal, type ISignal } from '@lumino/signaling';
import { viewInfo, viewTitle } from '../../protocol/view-info';
import type { ViewOptions } from '../../protocol/views.generated';
import { faultSentence } from '../../views/shared/fault-text';
import type { IMegalensViews, IViewReference } from '../../tokens';
import { ViewTab, type IViewTabOptions } from './view-tab';

/** What the tabs need of the application. */
export interface IViewTabsOptions {
  add: (widget: ViewTab) => void;
  activate: (id: string) => void;
  create: IViewTabOptions['create'];
  preload: () => Promise<void>;
  icon: LabIcon;
  trans: TranslationBundle;
}

/** Every view tab of the page. */
export class ViewTabs implements IMegalensViews {
  constructor(private readonly options: IViewTabsOptions) {
    this.tracker.widgetAdded.connect(() => this._changed.emit());
    this.tracker.currentChanged.connect(() => this._changed.emit());
  }

  /** The tabs, for the layout restorer. */
  readonly tracker = new WidgetTracker<ViewTab>({ namespace: 'megalens-views' });

  get changed(): ISignal<this, void> {
    return this._changed;
  }

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
    const same = this.tracker.find(tab => tab.run === run && subjectOf(tab.options) === subjectOf(options));
    if (same === undefined) {
      this._add(`megalens-view-${UUID.uuid4()}`, run, options);
      return;
    }
    this.options.activate(same.id);
    await same.setOptions({ ...same.options, ...options } as ViewOptions);
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
        options as unknown as ViewOptions
      );
    }
  }

  private _add(id: string, run: string, options: ViewOptions): void {
    const { trans, icon, add, activate, create } = this.options;
    const tab = new ViewTab({
      id,
      run,
      options,
      create,
      sayFailure: reason => trans.__('This view could not be loaded: %1', faultSentence(reason)),
      words: { again: trans.__('Try again'), copy: trans.__('Copy details') }
    });
    const own = viewInfo(options.view)?.icon;
    tab.title.icon = own === undefined ? icon : LabIcon.resolve({ icon: own });
    tab.optionsChanged.connect(() => {
      this._name();
      void this.tracker.save(tab);
      this._changed.emit();
    });
    tab.named.connect(() => this._name());
    tab.disposed.connect(() => {
      this._name();
      this._changed.emit();
    });
    void this.tracker.add(tab);
    this._name();
    add(tab);
    activate(id);
  }

  /** Call each tab by its view, and where there are tabs of several runs by its run too. */
  private _name(): void {
    const tabs = this.tracker.filter(tab => !tab.isDisposed);
    const several = new Set(tabs.map(({ run }) => run)).size > 1;
    for (const tab of tabs) {
      const view = viewTitle(
        tab.options,
        title => this.options.trans.__(title),
        flag => tab.flagTitle(flag)
      );
      tab.title.label = several ? `${view} · ${tab.runName}` : view;
      tab.title.caption = this.options.trans.__('%1 of run %2', view, tab.runName);
    }
  }

  private readonly _changed = new Signal<this, void>(this);
  private _preloading: Promise<void> | null = null;
}

/** What a view is about: tabs with the same subject are one. */
function subjectOf(options: ViewOptions): string {
  return 'flag' in options ? `${options.view} ${options.flag}` : options.view;
}

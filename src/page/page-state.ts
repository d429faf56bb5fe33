import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import { JSONExt, type ReadonlyPartialJSONObject, type ReadonlyPartialJSONValue } from '@lumino/coreutils';
import type { ISignal } from '@lumino/signaling';
import type { Widget } from '@lumino/widgets';
import { own, withOwn } from '../protocol/records';
import type { PageShell } from './page-shell';

/** A view of a run, as its tab holds it. */
interface IShownView {
  readonly run: string;
  readonly options: ReadonlyPartialJSONObject;
}

interface IViewTab extends Widget, IShownView {
  readonly optionsChanged: ISignal<unknown, unknown>;
}

/** What stands behind the `#` of the address, so that a reload, or who is given it, shows the same. */
interface IKept {
  readonly views?: readonly IShownView[];
  /** Place of the view that is in front. */
  readonly front?: number;
  readonly panel?: boolean;
  /** The table of all runs. */
  readonly table?: boolean;
  /** What the panel remembers, such as the run that was chosen. */
  readonly saved?: Readonly<Record<string, ReadonlyPartialJSONValue | undefined>>;
}

const CHOSEN = 'megalens:chosen-run';
const TABLE = 'megalens-runs-table';

/** The page's state in its address: which views are open, how, and which run the panel shows. */
export class PageState {
  constructor(
    /** Run and view of the address itself; empty where it names none. */
    private readonly _asked: { readonly run: string; readonly view: string },
    /** Whether the server has a run. */
    private readonly _isKnown: (run: string) => Promise<boolean>,
    private readonly _trans: TranslationBundle
  ) {
    this._choose = _trans.__('Choose a run at the left, and one of its views.');
    this._sentence = this._choose;
    const { hash } = window.location;
    if (hash.length > 1) {
      try {
        const kept: unknown = JSON.parse(decodeURIComponent(hash.slice(1)));
        this._kept = kept !== null && typeof kept === 'object' ? kept : {};
        this._isRead = true;
      } catch {
        this._sentence = `${_trans.__('What the address says behind # cannot be read.')} ${this._choose}`;
      }
    }
    this._saved = { ...this._kept.saved };
    if (_asked.run !== '') {
      this._saved[CHOSEN] ??= _asked.run;
    }
  }

  /** As JupyterLab's `IStateDB`, whose place this takes for the panel. */
  fetch(id: string): Promise<ReadonlyPartialJSONValue | undefined> {
    return Promise.resolve(own(this._saved, id));
  }

  save(id: string, value: ReadonlyPartialJSONValue): Promise<void> {
    this._saved = withOwn(this._saved, id, value);
    this._write();
    return Promise.resolve();
  }

  remove(id: string): Promise<void> {
    return this.save(id, null);
  }

  /** Show what the address says, and keep it up to date from now on. */
  async restore(
    shell: PageShell,
    commands: CommandRegistry,
    views: ReadonlyMap<string, string>
  ): Promise<void> {
    shell.say(this._sentence);
    const { front = 0, panel = this._asked.view === '', table } = this._kept;
    const { run, view } = this._asked;
    const given: unknown = this._kept.views;
    for (const { run, options } of (Array.isArray(given) ? (given as unknown[]) : []).filter(isView)) {
      await commands.execute('megalens:open-view', { run, options });
    }
    if (table === true) {
      await commands.execute('megalens:open-runs');
    }
    const ahead = shell.widgets('main').filter(isTab)[front];
    if (ahead !== undefined) {
      shell.activateById(ahead.id);
    }
    if (!this._isRead && run !== '') {
      // The first of the table is the one at a glance.
      const command = view === '' ? [...views.values()][0] : views.get(view);
      if (command === undefined) {
        shell.say(`${this._trans.__('There is no view %1.', view)} ${this._choose}`);
      } else if (await this._isKnown(run)) {
        await commands.execute(command, { run });
      } else {
        shell.say(`${this._trans.__('This server has no run %1 (any more).', run)} ${this._choose}`);
      }
    }
    shell.showPanel(panel === true || shell.widgets('main').length === 0);
    this._shell = shell;
    shell.changed.connect(() => this._write());
    this._write();
  }

  private _write(): void {
    if (this._shell === null) {
      return;
    }
    const tabs = this._shell.widgets('main').filter(isTab);
    for (const tab of tabs.filter(each => !this._followed.has(each))) {
      this._followed.add(tab);
      tab.optionsChanged.connect(() => this._write());
    }
    const { currentWidget } = this._shell;
    const front = tabs.findIndex(each => each === currentWidget);
    const table = this._shell.widgets('main').some(({ id }) => id === TABLE);
    const saved = Object.entries(this._saved).filter(([, value]) => value !== null);
    const kept: IKept = {
      views: tabs.map(({ run, options }) => ({ run, options })),
      ...(front > 0 ? { front } : {}),
      panel: this._shell.isPanelShown,
      ...(table ? { table } : {}),
      ...(saved.length > 0 ? { saved: Object.fromEntries(saved) } : {})
    };
    // A token by which Jupyter let somebody in does not stay in the address.
    const address = `${window.location.pathname}#${encodeURIComponent(JSON.stringify(kept))}`;
    window.history.replaceState(null, '', address);
    document.title =
      currentWidget === null
        ? 'Megalens'
        : `${currentWidget.title.caption || currentWidget.title.label} – Megalens`;
  }

  private _saved: Record<string, ReadonlyPartialJSONValue | undefined>;
  private readonly _followed = new WeakSet<Widget>();
  private _kept: IKept = {};
  private _isRead = false;
  /** What an empty page says to do. */
  private readonly _choose: string;
  private _sentence: string;
  private _shell: PageShell | null = null;
}

const isTab = (widget: Widget): widget is IViewTab => 'optionsChanged' in widget;

function isView(value: unknown): value is IShownView {
  const { run, options } = (value ?? {}) as Partial<IShownView>;
  return typeof run === 'string' && JSONExt.isObject(options ?? null);
}

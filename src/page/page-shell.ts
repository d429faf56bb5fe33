import { Signal } from '@lumino/signaling';
import { DockPanel, SplitPanel, type Widget } from '@lumino/widgets';

/** How much of the page the panel takes at first, of one. */
const PANEL_SHARE = 0.26;

/** The panel at the left and tabs beside it: what the plugins need of JupyterLab's shell, and no more. */
export class PageShell {
  constructor() {
    this.root.addClass('jp-MegalensPage-work');
    this._tabs.addClass('jp-MegalensPage-tabs');
    this._empty.className = 'jp-MegalensState jp-MegalensPage-empty';
    this._empty.setAttribute('role', 'status');
    this._tabs.node.append(this._empty);
    this.root.addWidget(this._tabs);
    this._tabs.layoutModified.connect(() => {
      this._empty.hidden = !this._tabs.isEmpty;
      this.changed.emit();
    });
  }

  readonly root = new SplitPanel({ orientation: 'horizontal', spacing: 4 });
  readonly node = this.root.node;

  /** Emitted when tabs come, go or move, another one is in front, or the panel is shown or hidden. */
  readonly changed = new Signal<this, void>(this);

  /** The tab that is worked in, or else one in front. */
  get currentWidget(): Widget | null {
    const front = [...this._tabs.tabBars()].flatMap(({ currentTitle }) => currentTitle?.owner ?? []);
    return front.find(({ node }) => node.contains(document.activeElement)) ?? front[0] ?? null;
  }

  widgets(area: string): Widget[] {
    return area === 'main' ? [...this._tabs.widgets()] : [];
  }

  add(widget: Widget, area: string, { mode, ref }: { mode?: DockPanel.InsertMode; ref?: string } = {}): void {
    if (area === 'left') {
      widget.hide();
      this.root.insertWidget(0, widget);
      return;
    }
    const beside = this.widgets('main').find(({ id }) => id === ref) ?? null;
    this._tabs.addWidget(widget, { mode: mode ?? 'tab-after', ref: beside });
    widget.title.changed.connect(() => this.changed.emit());
  }

  activateById(id: string): void {
    const tab = this.widgets('main').find(each => each.id === id);
    if (tab) {
      this._tabs.activateWidget(tab);
    } else if (this._panel?.id === id) {
      this.expandLeft();
      this._panel.activate();
    }
  }

  /** Whoever has this has a place at the left, as plugins know it. */
  expandLeft(): void {
    this.showPanel(true);
  }

  get isPanelShown(): boolean {
    return this._panel?.isHidden === false;
  }

  showPanel(shown: boolean): void {
    if (this.isPanelShown !== shown && this._panel !== null) {
      this._panel.setHidden(!shown);
      if (shown) {
        this.root.setRelativeSizes([PANEL_SHARE, 1 - PANEL_SHARE]);
      }
      this.changed.emit();
    }
  }

  /** Say something where no tab is. */
  say(sentence: string): void {
    this._empty.textContent = sentence;
  }

  private get _panel(): Widget | null {
    return this.root.widgets.find(widget => widget !== this._tabs) ?? null;
  }

  private readonly _tabs = new DockPanel({ tabsConstrained: true });
  private readonly _empty = document.createElement('p');
}

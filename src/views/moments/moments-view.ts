import { Signal, type ISignal } from '@lumino/signaling';
import type { MomentsOptions } from '../../protocol/views.generated';
import type { IRunSource } from '../../store/source';
import { toCode } from '../code';
import { element } from '../mount/dom';
import { Menu } from '../mount/menu';
import { filterControls } from './filter-controls';
import { LayersPane } from './layers-pane';
import { LinesPane } from './lines-pane';
import { MapPane } from './map-pane';
import { mainControls, type IControlFacts } from './moment-controls';
import { MovesPane } from './moves-pane';
import { NameFacts, type INameFacts } from './name-facts';
import { OtherRuns } from './other-runs';
import type { IPaneHost, MomentPane } from './pane';
import { TablePane } from './table-pane';
import type { MomentOptions } from './words';
import { stackPNG, stackSVG } from '../mount/stack';
import { renderState } from '../shared/states';
import { Toolbar, type Control } from '../mount/toolbar';
import { untranslated, type Translate } from '../shared/translate';
import type { IView, IViewHost, Mount } from '../view';
import { ViewError } from '../shared/view-error';
import { viewMenu } from '../mount/view-menu';

type Pane = new (
  node: HTMLElement,
  source: IRunSource,
  options: MomentOptions,
  host: IPaneHost
) => MomentPane;

/** A pane of an explorer and which of the explorer's options it is given otherwise. */
interface IPart {
  readonly pane: Pane;
  readonly instead?: Partial<MomentOptions>;
}

/** What each kind is made of. The first pane is the one whose zoom the menu means. */
const PARTS: Readonly<Record<MomentOptions['kind'], readonly IPart[]>> = {
  overview: [
    { pane: LinesPane, instead: { kind: 'lines', by: [] } },
    { pane: MovesPane },
    { pane: LinesPane, instead: { kind: 'lines', by: ['family'] } }
  ],
  lines: [{ pane: LinesPane }],
  tensors: [{ pane: LinesPane }],
  layers: [{ pane: LayersPane }],
  layer_map: [{ pane: MapPane }],
  item_map: [{ pane: MapPane }],
  table: [{ pane: TablePane }]
};

/** Reading more names than this takes longer than a frame. */
const MANY_NAMES = 2000;
/** Time for a picture to be seen first, ms. */
const AFTER_DRAWING = 50;

interface IMounted {
  readonly part: IPart;
  readonly node: HTMLElement;
  readonly pane: MomentPane;
}

/** The explorer of the stream `moments`: a toolbar, a line of filters that folds, and the panes of the chosen kind. */
class MomentsView implements IView<MomentsOptions> {
  constructor(
    readonly node: HTMLElement,
    private readonly _source: IRunSource,
    options: MomentOptions,
    private readonly _host: IViewHost = {}
  ) {
    this._options = options;
    this._t = _host.translate ?? untranslated;
    const t = this._t;
    const menu = new Menu(
      t('More actions'),
      () => {
        const first = this._panes[0]?.pane.menu ?? { resetZoom: () => undefined };
        return viewMenu(this, `${_source.name}-moments`, this._options, first, t);
      },
      reason => this._fail(reason)
    );
    this._toolbar = new Toolbar(t('View settings'), menu.node);
    this._filters = new Toolbar(t('Filters'), null);
    this._filters.node.hidden = true;
    this._others = new OtherRuns(_host.runs ?? null, () => this._panes.forEach(({ pane }) => pane.renew()));
    node.append(
      element(
        'div',
        { class: 'jp-MegalensMoments' },
        this._toolbar.node,
        this._filters.node,
        this._failure,
        this._body
      )
    );
    this._mount();
    void this._listRuns();
  }

  get options(): Readonly<MomentOptions> {
    return this._options;
  }

  get changed(): ISignal<this, Readonly<MomentOptions>> {
    return this._changed;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  async update(options: Partial<MomentsOptions>): Promise<void> {
    const next = { ...this._options, ...options };
    if (!this._isDisposed && JSON.stringify(next) !== JSON.stringify(this._options)) {
      const before = this._options;
      this._options = next;
      this._changed.emit(next);
      const panes = (kind: MomentOptions['kind']): Pane[] => PARTS[kind].map(({ pane }) => pane);
      const [had, wants] = [panes(before.kind), panes(next.kind)];
      if (had.length !== wants.length || had.some((pane, at) => pane !== wants[at])) {
        this._mount();
      } else {
        this._panes.forEach(({ part, pane }) => void pane.update({ ...next, ...part.instead }));
      }
    }
    await this.settled();
  }

  async settled(): Promise<void> {
    await Promise.all(this._panes.map(({ pane }) => pane.settled()));
  }

  summary(): string {
    return [...new Set(this._panes.map(({ pane }) => pane.summary()))].filter(Boolean).join(' ');
  }

  code(): string {
    return toCode(this._options, this._host.variable);
  }

  async toSVG(): Promise<string> {
    const pictures = await this._pictures(pane => pane.toSVG());
    return pictures.length === 1 ? (pictures[0] ?? '') : stackSVG(pictures);
  }

  /** The pictures with titles and captions as a PNG data URL. */
  async toPNG(): Promise<string> {
    const pictures = await this._pictures(pane => pane.toPNG());
    return pictures.length === 1 ? (pictures[0] ?? '') : stackPNG(pictures);
  }

  dispose(): void {
    if (this._isDisposed) {
      return;
    }
    this._isDisposed = true;
    clearTimeout(this._later);
    this._unmount();
    this._others.dispose();
    this.node.replaceChildren();
    Signal.clearData(this);
  }

  private async _pictures(draw: (pane: MomentPane) => Promise<string>): Promise<string[]> {
    const charts = this._panes.filter(({ part }) => part.pane !== TablePane && part.pane !== MovesPane);
    if (charts.length === 0) {
      throw new ViewError(this._t('A table has no picture. Download it as CSV, or draw lines.'));
    }
    return Promise.all(charts.map(({ pane }) => draw(pane)));
  }

  private _mount(): void {
    this._unmount();
    const parts = PARTS[this._options.kind];
    const { frame, ...host } = this._host;
    this._panes = parts.map((part, at) => {
      const node = element('div', { class: 'jp-MegalensMoments-pane' });
      this._body.append(node);
      const pane = new part.pane(
        node,
        this._source,
        { ...this._options, ...part.instead },
        {
          ...host,
          ...(frame && parts.length === 1 ? { frame } : {}),
          choose: options => void this.update(options),
          others: this._others,
          toolbar: chips => this._show(at, chips)
        }
      );
      return { part, node, pane };
    });
  }

  private _unmount(): void {
    this._panes.forEach(({ pane }) => pane.dispose());
    this._panes = [];
    this._body.replaceChildren();
  }

  /** Show the controls as things are now, and behind the first pane only panes that have something to add. */
  private _show(at: number, chips: readonly Control[]): void {
    const states = this._panes.map(({ node }) => node.firstElementChild?.getAttribute('data-state'));
    this._panes.forEach(({ node }, place) => {
      node.hidden = place > 0 && states[place] === 'none' && states[0] === 'none';
    });
    if (at === 0) {
      this._chips = chips;
      this._draw();
    }
  }

  private _draw(): void {
    const t = this._t;
    const pane = this._panes[0]?.pane;
    const facts: IControlFacts = {
      source: this._source,
      options: this._options,
      index: pane?.index ?? null,
      names: this._namesOf(pane?.index?.names ?? []),
      steps: pane?.steps ?? new Float64Array(),
      runs: this._runs,
      choose: options => void this.update(options)
    };
    const fold = (open: boolean): void => {
      this._filters.node.hidden = !open;
      void this._listRuns();
      this._draw();
      // The pictures have less or more room.
      this._panes.forEach(({ pane }) => pane.refresh(false));
    };
    const open = !this._filters.node.hidden;
    this._toolbar.update([...mainControls(facts, open, fold, t), ...this._chips]);
    this._filters.update(open ? filterControls(facts, t) : []);
  }

  /** What names say; of thousands only after the picture that is being drawn, which would wait for it. */
  private _namesOf(names: readonly string[]): INameFacts {
    const { stat } = this._options;
    if (names.length <= MANY_NAMES || this._names.knows(names, stat)) {
      return this._names.of(names, stat);
    }
    clearTimeout(this._later);
    this._later = setTimeout(() => {
      this._names.of(names, stat);
      this._draw();
    }, AFTER_DRAWING);
    return this._names.of([], stat);
  }

  /** Learn which runs there are to compare with; those of when the filters were opened last. */
  private async _listRuns(): Promise<void> {
    const runs = await this._host.runs?.list().catch(() => null);
    if (runs && !this._isDisposed) {
      this._runs = runs.filter(({ id }) => id !== this._source.id);
      this._draw();
    }
  }

  private _fail(reason: unknown): void {
    const dismiss = {
      label: this._t('Dismiss'),
      run: () => renderState(this._failure, null, () => undefined)
    };
    const sentence = reason instanceof Error ? reason.message : String(reason);
    renderState(this._failure, { kind: 'error', sentence, action: dismiss }, () => undefined);
  }

  private _options: MomentOptions;
  private _panes: IMounted[] = [];
  private _chips: readonly Control[] = [];
  private _runs: IControlFacts['runs'] = null;
  private _isDisposed = false;
  private readonly _t: Translate;
  private readonly _toolbar: Toolbar;
  private readonly _filters: Toolbar;
  private readonly _others: OtherRuns;
  private readonly _names = new NameFacts();
  private _later: ReturnType<typeof setTimeout> | undefined;
  private readonly _failure = element('div', { class: 'jp-MegalensBanner', hidden: '' });
  private readonly _body = element('div', { class: 'jp-MegalensMoments-body' });
  private readonly _changed = new Signal<this, Readonly<MomentOptions>>(this);
}

/** Explore the statistics of a run. */
export const mountMoments: Mount<MomentsOptions> = (node, source, options, host) =>
  new MomentsView(node, source, options, host);

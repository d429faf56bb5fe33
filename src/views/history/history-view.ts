import { Signal, type ISignal } from '@lumino/signaling';
import type { HeatmapOptions, HistoryOptions, TrendOptions } from '../../protocol/views.generated';
import type { IRunSource } from '../../store/source';
import { toCode } from '../code';
import { element } from '../mount/dom';
import { HeatmapView } from '../heatmap/heatmap-view';
import { HistoryMap } from './history-map';
import { Menu } from '../mount/menu';
import { stackPNG, stackSVG } from '../mount/stack';
import { renderState } from '../shared/states';
import { Toolbar, type Control } from '../mount/toolbar';
import { untranslated } from '../shared/translate';
import type { IView, IViewHost, Mount } from '../view';
import { viewMenu } from '../mount/view-menu';

/** Controls of the map's toolbar that a history has; the others come from the tensor's. */
const OF_MAP = ['run', 'flag', 'part', 'layers', 'statistic', 'phase', 'pass', 'rank'];
const OF_TENSOR = ['head', 'sample', 'steps', 'transform'];

/** A statistic as layer × step, and the tensor of the layer and step that are chosen there: a trend and a heatmap that move together. */
class HistoryView implements IView<HistoryOptions> {
  constructor(
    readonly node: HTMLElement,
    private readonly _source: IRunSource,
    options: Required<HistoryOptions>,
    private readonly _host: IViewHost = {}
  ) {
    this._options = this._told = options;
    const t = _host.translate ?? untranslated;
    const menu = new Menu(
      t('More actions'),
      () => {
        const actions = { resetZoom: () => undefined, exportReport: _host.exportReport };
        return viewMenu(this, `${_source.name}-history`, this._options, actions, t).filter(
          item => item.label !== t('Reset zoom')
        );
      },
      reason => {
        const dismiss = { label: t('Dismiss'), run: () => renderState(this._failure, null, () => undefined) };
        const sentence = reason instanceof Error ? reason.message : String(reason);
        renderState(this._failure, { kind: 'error', sentence, action: dismiss }, () => undefined);
      }
    );
    this._toolbar = new Toolbar(t('View settings'), menu.node);
    node.append(
      element(
        'div',
        { class: 'jp-MegalensHistory' },
        this._toolbar.node,
        this._failure,
        this._above,
        this._below
      )
    );
    const { frame: _frame, ...host } = _host;
    const inner = (which: 'map' | 'tensor'): IViewHost => ({
      ...host,
      toolbar: controls => this._gather(which, controls)
    });
    this._map = new HistoryMap(
      this._above,
      _source,
      mapOptions(options),
      inner('map'),
      ({ layer, step }) => void this.update({ layer, step })
    );
    this._tensor = new HeatmapView(this._below, _source, tensorOptions(options, 1), inner('tensor'));
    // What is chosen in one of the two is an option of the whole.
    this._map.changed.connect((_, now) => {
      const {
        view: _view,
        kind: _kind,
        positions: _all,
        vector: _vector,
        interval: _none,
        ...heard
      } = changes(mapOptions(this._told), now);
      const anew = heard.flag === undefined ? {} : { head: 0, layer: null };
      void this.update({ ...heard, ...anew });
    });
    this._tensor.changed.connect((_, now) => {
      const {
        view: _view,
        scale: _scale,
        layers,
        ...heard
      } = changes(tensorOptions(this._told, this._layer), now);
      void this.update({ ...heard, ...(layers === undefined ? {} : { layer: Number(layers) }) });
    });
    void this._spread();
  }

  get options(): Readonly<Required<HistoryOptions>> {
    return this._options;
  }

  get changed(): ISignal<this, Readonly<Required<HistoryOptions>>> {
    return this._changed;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  async update(options: Partial<HistoryOptions>): Promise<void> {
    const next = { ...this._options, ...options };
    if (!this._isDisposed && JSON.stringify(next) !== JSON.stringify(this._options)) {
      this._options = next;
      this._changed.emit(next);
      await this._spread();
    }
    await this.settled();
  }

  async settled(): Promise<void> {
    await this._spreading;
    await Promise.all([this._map.settled(), this._tensor.settled()]);
  }

  summary(): string {
    return [...new Set([this._map.summary(), this._tensor.summary()])].filter(Boolean).join(' ');
  }

  code(): string {
    return toCode(this._options, this._host.variable);
  }

  async toSVG(): Promise<string> {
    return stackSVG(await Promise.all([this._map.toSVG(), this._tensor.toSVG()]));
  }

  /** Both pictures with titles and captions as a PNG data URL. */
  async toPNG(): Promise<string> {
    return stackPNG(await Promise.all([this._map.toPNG(), this._tensor.toPNG()]));
  }

  dispose(): void {
    if (this._isDisposed) {
      return;
    }
    this._isDisposed = true;
    this._map.dispose();
    this._tensor.dispose();
    this.node.replaceChildren();
    Signal.clearData(this);
  }

  /** Hand the options to both; calls of one moment end with the last one's. */
  private _spread(): Promise<void> {
    this._spreading = (async () => {
      const { layers } = await this._source.shapeOf(this._options.flag).catch(() => ({ layers: [] }));
      if (!this._isDisposed) {
        this._layer = this._options.layer ?? layers[0] ?? 1;
        this._told = this._options;
        // What a view was told already it does not do again.
        void this._map.update(mapOptions(this._options));
        void this._tensor.update(tensorOptions(this._options, this._layer));
      }
    })();
    return this._spreading;
  }

  private _gather(which: 'map' | 'tensor', controls: readonly Control[]): void {
    const names = which === 'map' ? OF_MAP : OF_TENSOR;
    const wanted = controls.filter(({ id }) => names.includes(id) || (which === 'map' && id === 'filter'));
    this._controls = { ...this._controls, [which]: wanted };
    const { map, tensor } = this._controls;
    const chips = map.filter(({ id }) => id === 'filter');
    this._toolbar.update([...map.filter(({ id }) => id !== 'filter'), ...tensor, ...chips]);
    // The constructors of the two may gather before both are there.
    const shown = this._tensor?.shown;
    if (this._map) {
      this._map.choice = shown ? { layer: shown.layers[0]?.layer ?? this._layer, step: shown.step } : null;
    }
    if (which === 'map' && this._options.layer === null && this._tensor && !shown) {
      // The first layer is known only once there are rows.
      void this._spread();
    }
    this._below.hidden = this._above.firstElementChild?.getAttribute('data-state') === 'none';
  }

  private _options: Required<HistoryOptions>;
  /** Options that the two were given last. */
  private _told: Required<HistoryOptions>;
  private _layer = 1;
  private _controls: Record<'map' | 'tensor', readonly Control[]> = { map: [], tensor: [] };
  private _spreading: Promise<void> = Promise.resolve();
  private _isDisposed = false;
  private readonly _failure = element('div', { class: 'jp-MegalensBanner', hidden: '' });
  private readonly _above = element('div', { class: 'jp-MegalensHistory-map' });
  private readonly _below = element('div', { class: 'jp-MegalensHistory-tensor' });
  private readonly _toolbar: Toolbar;
  private readonly _map: HistoryMap;
  private readonly _tensor: HeatmapView;
  private readonly _changed = new Signal<this, Readonly<Required<HistoryOptions>>>(this);
}

/** What differs between two sets of options. */
function changes<T extends object>(before: T, now: T): Partial<T> {
  const different = Object.entries(now).filter(
    ([name, value]) => JSON.stringify(value) !== JSON.stringify(Reflect.get(before, name))
  );
  return Object.fromEntries(different) as Partial<T>;
}

function mapOptions(options: Required<HistoryOptions>): Required<TrendOptions> {
  const { flag, part, layers, statistic, steps, transform, phase, rank, pass } = options;
  const whole = { positions: 'all', vector: 0, interval: 'none' } as const;
  return {
    view: 'trend',
    kind: 'heatmap',
    flag,
    part,
    layers,
    statistic,
    steps,
    transform,
    phase,
    rank,
    pass,
    ...whole
  };
}

function tensorOptions(options: Required<HistoryOptions>, layer: number): Required<HeatmapOptions> {
  const { flag, part, step, sample, head, transform, phase, rank, pass } = options;
  const one = { layers: String(layer), scale: 'own' } as const;
  return { view: 'heatmap', flag, part, step, sample, head, transform, phase, rank, pass, ...one };
}

/** Draw a statistic as layer × step and the tensor of one of its cells. */
export const mountHistory: Mount<HistoryOptions> = (node, source, options, host) =>
  new HistoryView(node, source, options, host);

import { Signal, type ISignal } from '@lumino/signaling';
import { viewTitle } from '../protocol/view-info';
import { fullViewOptions } from '../protocol/view-options';
import type { ViewOptions } from '../protocol/views.generated';
import type { IRunSource } from '../store/source';
import { toCode } from './code';
import { copyText, element } from './mount/dom';
import { Menu } from './mount/menu';
import type { IOtherMounted, IViewModule, OtherOptions } from './other-views';
import { untranslated } from './shared/translate';
import type { IView, IViewHost } from './view';
import { ViewError } from './shared/view-error';

/** A view of another package as hosts hold any view: title and menu around what it draws, its options checked. */
export class OtherView implements IView {
  private constructor(
    readonly node: HTMLElement,
    private _options: Readonly<Required<ViewOptions>>,
    private readonly _host: IViewHost
  ) {
    const t = _host.translate ?? untranslated;
    const menu = new Menu(
      t('More'),
      () => [
        { label: t('Copy as code'), run: () => copyText(toCode(this._options, _host.variable)) },
        { label: t('Copy summary'), run: () => copyText(this.summary()) }
      ],
      () => undefined
    );
    node.append(
      element(
        'section',
        { class: 'jp-MegalensView' },
        element(
          'div',
          { class: 'jp-MegalensToolbar' },
          element('span', { class: 'jp-MegalensToolbar-name' }, viewTitle(_options, t)),
          menu.node
        ),
        this._body
      )
    );
  }

  /** Put a view of another package into an empty node. */
  static async mount(
    module: IViewModule,
    node: HTMLElement,
    source: IRunSource,
    options: Readonly<Required<ViewOptions>>,
    host: IViewHost
  ): Promise<OtherView> {
    const view = new OtherView(node, options, host);
    const mounted = await module.mount(view._body, source, optionsOf(options), {
      translate: host.translate ?? untranslated,
      choose: changes => void view.update(changes as Partial<ViewOptions>)
    });
    view._mounted = mounted;
    if (view.isDisposed) {
      mounted.dispose();
    }
    return view;
  }

  get options(): Readonly<Required<ViewOptions>> {
    return this._options;
  }

  get changed(): ISignal<IView, Readonly<Required<ViewOptions>>> {
    return this._changed;
  }

  get isDisposed(): boolean {
    return this._disposed;
  }

  async update(changes: Partial<ViewOptions>): Promise<void> {
    const before = JSON.stringify(this._options);
    this._options = fullViewOptions({ ...this._options, ...changes });
    if (JSON.stringify(this._options) !== before) {
      this._drawn = Promise.resolve(this._mounted?.update(optionsOf(this._options)));
      this._changed.emit(this._options);
    }
    await this._drawn;
  }

  async settled(): Promise<void> {
    await this._drawn;
  }

  summary(): string {
    return this._mounted?.summary?.() ?? viewTitle(this._options, this._host.translate);
  }

  async toSVG(): Promise<string> {
    if (this._mounted?.toSVG !== undefined) {
      return this._mounted.toSVG();
    }
    const svg = this._body.querySelector('svg');
    if (svg === null) {
      throw new ViewError('This view has no picture that could be saved.');
    }
    return svg.outerHTML;
  }

  dispose(): void {
    if (!this._disposed) {
      this._disposed = true;
      this._mounted?.dispose();
      Signal.clearData(this);
      this.node.replaceChildren();
    }
  }

  private readonly _body = element('div', { class: 'jp-MegalensOtherView' });
  private readonly _changed = new Signal<IView, Readonly<Required<ViewOptions>>>(this);
  private _mounted: IOtherMounted | null = null;
  private _drawn: Promise<void> = Promise.resolve();
  private _disposed = false;
}

function optionsOf(options: Readonly<Required<ViewOptions>>): OtherOptions {
  const { view: _view, ...own } = options;
  return own;
}

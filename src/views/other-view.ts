import { viewTitle } from '../protocol/view-info';
import type { ViewOptions } from '../protocol/views.generated';
import type { IRunSource } from '../store/source';
import { copyText, element } from './mount/dom';
import { Menu } from './mount/menu';
import { Mounted } from './mount/mounted';
import { untranslated } from './shared/translate';
import type { IMountModule, IOtherMounted, OtherOptions, IViewHost } from './view';
import { ViewError } from './shared/definition';

/**
 * A view of another package as hosts hold any view: title and menu around what it draws, its options checked.
 */
export class OtherView extends Mounted {
  private constructor(node: HTMLElement, options: Readonly<Required<ViewOptions>>, host: IViewHost) {
    super(node, options, host);
    const { t } = this;
    const menu = new Menu(
      t('More'),
      () => [
        { label: t('Copy as code'), run: () => copyText(this.code()) },
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
          element('span', { class: 'jp-MegalensToolbar-name' }, viewTitle(options, t)),
          menu.node
        ),
        this._body
      )
    );
  }

  /** Put a view of another package into an empty node. */
  static async mount(
    module: IMountModule,
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

  protected async chosen(): Promise<void> {
    this._drawn = Promise.resolve(this._mounted?.update(optionsOf(this.options)));
    await this._drawn;
  }

  async settled(): Promise<void> {
    await this._drawn;
  }

  summary(): string {
    return this._mounted?.summary?.() ?? viewTitle(this.options, this.t);
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

  protected end(): void {
    this._mounted?.dispose();
    this.node.replaceChildren();
  }

  private readonly _body = element('div', { class: 'jp-MegalensOtherView' });
  private _mounted: IOtherMounted | null = null;
  private _drawn: Promise<void> = Promise.resolve();
}

function optionsOf(options: Readonly<Required<ViewOptions>>): OtherOptions {
  const { view: _view, ...own } = options;
  return own;
}

import { Signal } from '@lumino/signaling';
import { fullViewOptions } from '../../protocol/view-options';
import type { ViewOptions } from '../../protocol/views.generated';
import { toCode } from '../code';
import { untranslated, type Translate } from '../shared/translate';
import type { IView, IViewHost } from '../view';

/** What every mounted view has, whatever draws it: options that can be changed, their code, and an end. */
export abstract class Mounted<O extends ViewOptions = ViewOptions> implements IView<O> {
  constructor(
    readonly node: HTMLElement,
    private _options: Readonly<Required<O>>,
    protected readonly host: IViewHost
  ) {
    this.t = host.translate ?? untranslated;
  }

  get options(): Readonly<Required<O>> {
    return this._options;
  }

  async update(options: Partial<O>): Promise<void> {
    const next = { ...this._options, ...options };
    if (!this.isDisposed && JSON.stringify(next) !== JSON.stringify(this._options)) {
      fullViewOptions(next);
      this._options = next;
      this.changed.emit(next);
      await this.chosen();
    }
    await this.settled();
  }

  code(): string {
    const { opening } = this.host;
    return opening === undefined ? toCode(this.plain) : `import megalens\n\n${toCode(this.plain, opening)}`;
  }

  dispose(): void {
    if (!this.isDisposed) {
      this.isDisposed = true;
      this.end();
      Signal.clearData(this);
    }
  }

  abstract settled(): Promise<void>;
  abstract summary(): string;
  abstract toSVG(): Promise<string>;

  /** Draw what the options are now. */
  protected abstract chosen(): void | Promise<void>;

  protected abstract end(): void;

  /** The options as the union that all views share. */
  protected get plain(): ViewOptions {
    return this._options as O;
  }

  protected readonly t: Translate;
  isDisposed = false;
  readonly changed = new Signal<this, Readonly<Required<O>>>(this);
}

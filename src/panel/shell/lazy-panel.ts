import { Spinner } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import { Panel, type Widget } from '@lumino/widgets';
import { faultText } from '../../views/shared/fault-text';

/**
 * A widget whose content is loaded when it is first shown, so that a start of JupyterLab does not pay for it.
 *
 * When loading fails it says so, and tries again when it is asked to or shown again.
 */
export class LazyPanel<T extends Widget = Widget> extends Panel {
  constructor(
    private readonly load: () => Promise<T>,
    private readonly sayFailure: (reason: unknown) => string,
    /** What the two buttons beside a failure say. */
    private readonly words: { readonly again: string; readonly copy: string }
  ) {
    super();
    this.addClass('jp-MegalensLazy');
  }

  /** The content, loaded now when it is not there yet. */
  content(): Promise<T> {
    this._content ??= this._fill();
    return this._content;
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    if (this.isVisible) {
      this._begin();
    }
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this._begin();
  }

  protected override onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    this.node.querySelector<HTMLElement>('[tabindex="0"], button')?.focus();
  }

  private _begin(): void {
    // What went wrong is on the page.
    void this.content().catch(() => undefined);
  }

  private async _fill(): Promise<T> {
    const spinner = new Spinner();
    this.widgets.forEach(widget => widget.dispose());
    this.node.querySelector('.jp-MegalensLazy-fault')?.remove();
    this.addWidget(spinner);
    try {
      const content = await this.load();
      if (this.isDisposed) {
        content.dispose();
        throw new Error('The panel was closed while it was loading.');
      }
      this.addWidget(content);
      return content;
    } catch (error) {
      this._content = null;
      this.node.append(this._fault(error));
      throw error;
    } finally {
      spinner.dispose();
    }
  }

  private _fault(error: unknown): HTMLElement {
    const { again, copy } = this.words;
    const fault = document.createElement('div');
    fault.className = 'jp-MegalensLazy-fault';
    fault.setAttribute('role', 'alert');
    const sentence = document.createElement('p');
    sentence.textContent = this.sayFailure(error);
    fault.append(sentence);
    const buttons: readonly (readonly [string, () => void])[] = [
      [again, () => this._begin()],
      [copy, () => void navigator.clipboard.writeText(faultText('loading', error)).catch(() => undefined)]
    ];
    for (const [label, act] of buttons) {
      const button = document.createElement('button');
      button.type = 'button';
      button.className = 'jp-MegalensButton';
      button.textContent = label;
      button.addEventListener('click', act);
      fault.append(button, ' ');
    }
    return fault;
  }

  private _content: Promise<T> | null = null;
}

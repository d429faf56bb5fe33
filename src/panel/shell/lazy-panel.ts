import { Spinner } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import { Panel, type Widget } from '@lumino/widgets';

/**
 * A widget whose content is loaded when it is first shown, so that a start of JupyterLab does not pay for it.
 *
 * When loading fails it says so and tries again when it is shown again.
 */
export class LazyPanel<T extends Widget = Widget> extends Panel {
  constructor(
    private readonly load: () => Promise<T>,
    private readonly sayFailure: (reason: unknown) => string
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
      const fault = document.createElement('p');
      fault.className = 'jp-MegalensLazy-fault';
      fault.setAttribute('role', 'alert');
      fault.textContent = this.sayFailure(error);
      this.node.append(fault);
      throw error;
    } finally {
      spinner.dispose();
    }
  }

  private _content: Promise<T> | null = null;
}

import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { Panel } from '@lumino/widgets';

/** An output renderer whose code is loaded with the first output that needs it. */
export class LazyRenderer extends Panel implements IRenderMime.IRenderer {
  constructor(private readonly load: () => Promise<IRenderMime.IRenderer>) {
    super();
    this.addClass('jp-MegalensOutput');
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    this._renderer ??= this._make();
    const renderer = await this._renderer;
    if (!this.isDisposed) {
      await renderer.renderModel(model);
    }
  }

  private async _make(): Promise<IRenderMime.IRenderer> {
    const renderer = await this.load();
    if (this.isDisposed) {
      renderer.dispose();
    } else {
      this.addWidget(renderer);
    }
    return renderer;
  }

  private _renderer: Promise<IRenderMime.IRenderer> | null = null;
}

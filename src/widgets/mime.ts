import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import type { IDisposable } from '@lumino/disposable';
import { JSONExt, type ReadonlyPartialJSONObject, type ReadonlyPartialJSONValue } from '@lumino/coreutils';
import { Widget, PanelLayout } from '@lumino/widgets';
import type { ViewOptions } from '../protocol/views.generated';
import { faultSentence } from '../views/shared/fault-text';
import { openingCode } from '../views/code';
import { bind, bindings } from './bindings';
import { notice, type IOutputNotice, offered, ENGLISH, type IWidgetRuns, type IWords } from './runs';
import { savedPicture, withPicture } from './saved-picture';
import { VIEW_MIME, readKeptJson, readViewJson, type IViewJson } from './view-json';
import { type MountView, ViewHost } from './view-host';
import { translateBy } from '../views/shared/translate';

/** Opens another view of a run beside the notebook. */
export type OpenView = (run: string, options: ViewOptions) => void;

/** Mount a view by its name, loading the views on first use; `open` follows what leads to another view. */
export const mountWith =
  (open?: OpenView): MountView =>
  async (node, source, options, words, runs) => {
    const { mountView } = await import('../views/registry');
    return mountView(node, source, options, {
      runs: offered(runs),
      ...(open && { openView: (other: ViewOptions) => open(source.id, other) }),
      // Of the notebook's variables nothing is known here.
      opening: openingCode(source.id, null),
      translate: translateBy(words)
    });
  };

export const mountLazily: MountView = mountWith();

/** Rank for `rendermime.addFactory`: before ipywidgets' own renderer, which stands at −10. */
export const VIEW_RANK = -20;

/** Draws `application/vnd.megalens.view+json` from the page's runs, whatever the kernel is doing. */
export class ViewRenderer extends Widget implements IRenderMime.IRenderer {
  constructor(
    runs: IWidgetRuns,
    words: IWords,
    mount: MountView,
    private readonly _resolver: IRenderMime.IResolver | null = null
  ) {
    super();
    this.addClass('jp-MegalensCell');
    this.layout = new PanelLayout();
    this._runs = runs;
    this._words = words;
    this._mount = mount;
  }

  /** Draw a cell's output. The same run again only changes the options. */
  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    this._model = model;
    const data: ReadonlyPartialJSONValue | undefined = model.data[VIEW_MIME];
    if (this._shown !== undefined && JSONExt.deepEqual(this._shown, data ?? null)) {
      return;
    }
    this._shown = data ?? null;
    let view: IViewJson;
    try {
      view = readViewJson(data);
    } catch (error) {
      this._close();
      this.node.replaceChildren(
        notice({
          sentence: faultSentence(error),
          actions: this._waysOn(data, model),
          picture: savedPicture(model.data),
          alt: this._words.__('Saved picture')
        })
      );
      return;
    }
    if (this._host && view.run.id === this._runId && view.modelId === this._modelId) {
      this._host.setOptions(view.options);
      return;
    }
    this._open(view, model);
  }

  override dispose(): void {
    if (!this.isDisposed) {
      this._close();
      super.dispose();
    }
  }

  private _open(view: IViewJson, model: IRenderMime.IMimeModel): void {
    this._close();
    this.node.replaceChildren();
    const host = new ViewHost({
      runs: this._runs,
      run: view.run,
      options: view.options,
      dropped: view.dropped,
      words: this._words,
      mount: this._mount,
      folder: () => this._folder(view.run.folder),
      picture: savedPicture(model.data)
    });
    this._host = host;
    this._runId = view.run.id;
    this._modelId = view.modelId;
    host.optionsChanged.connect(this._keep, this);
    host.mounted.connect(this._supply, this);
    (this.layout as PanelLayout).addWidget(host);
    this._binding = bind(host, view.modelId, bindings);
  }

  /**
   * A view whose options cannot be read can still be drawn with the defaults; the picture is of those that
   * were saved.
   */
  private _waysOn(data: unknown, model: IRenderMime.IMimeModel): IOutputNotice['actions'] {
    try {
      const kept = readKeptJson(data);
      return [{ label: this._words.__('Draw with default options'), run: () => this._open(kept, model) }];
    } catch {
      return [];
    }
  }

  /**
   * Save a picture where the cell was run before there was anything to draw; one that is there stays as the
   * cell left it.
   */
  private _supply(host: ViewHost): void {
    const data = this._model?.data;
    if (data?.['text/html'] !== undefined && savedPicture(data) === null) {
      void host.toSVG().then(
        svg => (svg === null ? undefined : this._write(host)),
        () => undefined // Still nothing to draw.
      );
    }
  }

  /**
   * Write the options that the person chose, and the picture of them, into the notebook, so that both are
   * there after a reload.
   */
  private _keep(host: ViewHost): void {
    void this._write(host);
  }

  private async _write(host: ViewHost): Promise<void> {
    const turn = ++this._turn;
    // A view that shows a state has no picture; the options are kept all the same.
    const svg = await host.toSVG().catch(() => null);
    const model = this._model;
    const shown = this._shown;
    if (turn !== this._turn || this.isDisposed || !model || !JSONExt.isObject(shown ?? null)) {
      return;
    }
    const json = { ...(shown as ReadonlyPartialJSONObject), options: { ...host.options } };
    this._shown = json;
    model.setData({ data: withPicture({ ...model.data, [VIEW_MIME]: json }, svg) });
  }

  /** Where a folder beside the notebook is below the server's root. */
  private async _folder(relative: string | null): Promise<string | null> {
    if (relative === null || this._resolver === null) {
      return null;
    }
    // What it answers is part of an address.
    return decodeURI(await this._resolver.resolveUrl(encodeURI(relative)));
  }

  private _close(): void {
    this._turn++;
    this._binding?.dispose();
    this._binding = null;
    this._host?.dispose();
    this._host = null;
  }

  private readonly _runs: IWidgetRuns;
  private readonly _words: IWords;
  private readonly _mount: MountView;
  private _model: IRenderMime.IMimeModel | null = null;
  private _shown: ReadonlyPartialJSONValue | undefined;
  private _host: ViewHost | null = null;
  private _binding: IDisposable | null = null;
  private _runId = '';
  private _modelId: string | null = null;
  private _turn = 0;
}

/**
 * Make the renderer factory of a view in a cell. Hand it to `rendermime.addFactory(factory, VIEW_RANK)`.
 *
 * It is safe: the JSON holds names and options only, both checked, and nothing of it is put into the page as
 * HTML.
 *
 * @param words The user's language; English when absent.
 * @param mount For tests and other hosts; the views of this package when absent.
 */
export function createMimeFactory(
  runs: IWidgetRuns,
  words: IWords = ENGLISH,
  mount: MountView = mountLazily
): IRenderMime.IRendererFactory {
  return {
    safe: true,
    mimeTypes: [VIEW_MIME],
    defaultRank: VIEW_RANK,
    createRenderer: ({ resolver }) => new ViewRenderer(runs, words, mount, resolver)
  };
}

import type { TranslationBundle } from '@jupyterlab/translation';
import { MimeData } from '@lumino/coreutils';
import { Drag } from '@lumino/dragdrop';
import type { Widget } from '@lumino/widgets';
import { followPointer } from '../../charts/zoom';
import { viewInfo, viewTitle } from '../../protocol/view-info';
import type { IMegalensRuns, IMegalensViews, IRunEntry, IViewReference } from '../../tokens';
import type { IMegalensPanel } from '../shell/panel-token';
import { isNotebook, kernelRun, runInCells, viewCell, type KernelRun } from './kernel-run';

/** What JupyterLab's notebooks take. */
const CELLS = 'application/vnd.jupyter.cells';
const START_PIXELS = 5;

/** A view that may be dragged into a notebook. */
interface IDraggable {
  /** What the image under the pointer says. */
  readonly label: string;
  /** Notified when it is no click any more. */
  begun(): void;
  /** Code of the cell, once it is known what it is dropped on. */
  code(target: Element | null): string;
}

/**
 * Drag a view as a notebook cell, once the pointer has moved a little; until then it may still be a click.
 */
function dragView(down: PointerEvent, what: IDraggable): void {
  const release = followPointer({
    move: event => {
      if (event.buttons === 0) {
        // The button was let go of before anybody listened.
        release();
      } else if (Math.hypot(event.clientX - down.clientX, event.clientY - down.clientY) >= START_PIXELS) {
        release();
        begin(event, what);
      }
    }
  });
}

function begin(event: PointerEvent, what: IDraggable): void {
  what.begun();
  const mimeData = new MimeData();
  const fill = (target: Element | null): void => {
    const source = what.code(target);
    mimeData.setData(CELLS, [
      { cell_type: 'code', source, metadata: {}, outputs: [], execution_count: null }
    ]);
    mimeData.setData('text/plain', source);
  };
  fill(null);
  const image = document.createElement('div');
  image.className = 'jp-MegalensDragImage';
  image.textContent = what.label;
  const drag = new Drag({ mimeData, dragImage: image, supportedActions: 'copy', proposedAction: 'copy' });
  // What the cell needs depends on the notebook; it is asked before the notebook reads the data.
  const drop = (dropped: Event): void => fill(dropped.target instanceof Element ? dropped.target : null);
  document.addEventListener('lm-drop', drop, true);
  void drag.start(event.clientX, event.clientY).finally(() => {
    document.removeEventListener('lm-drop', drop, true);
    drag.dispose();
  });
}

/** What the inserter needs of the page. */
export interface IViewInserterOptions {
  readonly runs: Pick<IMegalensRuns, 'list'>;
  readonly views: Pick<IMegalensViews, 'at'>;
  readonly panel: Pick<IMegalensPanel, 'model'>;
  /** What stands in the main area. */
  notebooks(): Iterable<Widget>;
  /** What is in front there. */
  current(): Widget | null;
  execute(command: string, args?: { text: string }): Promise<unknown>;
  /** Tell the user why nothing happened. */
  tell(sentence: string): void;
  readonly trans: TranslationBundle;
}

/** Puts views into notebooks as cells: what is dragged there, and what a command names. */
export class ViewInserter {
  constructor(private readonly _page: IViewInserterOptions) {}

  /** The view that an element stands for: a button of the panel, or something in a view's tab; else null. */
  async subject(node: Element | null): Promise<IViewReference | null> {
    const name = node?.closest<HTMLElement>('.jp-MegalensViews [data-view]')?.dataset['view'];
    return name !== undefined && viewInfo(name) !== undefined
      ? (await this._page.panel.model()).viewOf(name)
      : this._page.views.at(node?.closest('.jp-MegalensViewTab')?.id ?? '');
  }

  /** Begin to drag a view by something that stands for it. */
  async press(event: PointerEvent, handle: Element): Promise<void> {
    // What the drop needs is asked for while the hand still moves: what a notebook has not said by then is
    // not known.
    void this._page.runs.list().then(
      entries => (this._entries = entries),
      () => undefined
    );
    const answers = new Map<Widget, KernelRun>();
    const subject = await this.subject(handle);
    if (subject !== null) {
      dragView(event, {
        label: viewTitle(subject.options, title => this._page.trans.__(title)),
        begun: () => {
          for (const notebook of this._page.notebooks()) {
            if (isNotebook(notebook) && !notebook.isHidden) {
              void kernelRun(notebook).then(answer => answers.set(notebook, answer));
            }
          }
        },
        code: target => {
          const notebook = this._notebookAt(target);
          return this._cell(subject, (notebook && answers.get(notebook)) ?? runInCells(notebook));
        }
      });
    }
  }

  /** Add a cell with a view's code below the active cell of the notebook that was last in use. */
  async insert(subject: IViewReference | null): Promise<void> {
    const { notebooks, current, execute, tell, trans, runs } = this._page;
    if (subject === null) {
      return tell(trans.__('There is no view to insert. Open one first.'));
    }
    if (![...notebooks()].some(isNotebook)) {
      return tell(trans.__('There is no open notebook to insert the view into. Open one first.'));
    }
    this._entries = await runs.list().catch(() => this._entries);
    // It activates the notebook that was last in use, and its new cell.
    await execute('notebook:insert-cell-below');
    const notebook = current();
    if (isNotebook(notebook)) {
      await execute('notebook:replace-selection', { text: this._cell(subject, await kernelRun(notebook)) });
    }
  }

  private _cell({ run, options }: IViewReference, bound: KernelRun): string {
    // One that is not listed was live a moment ago.
    const entry = this._entries.find(({ id }) => id === run) ?? { id: run, state: 'live', folder: null };
    return viewCell(entry, options, bound);
  }

  private _notebookAt(target: Element | null): Widget | null {
    return [...this._page.notebooks()].find(each => isNotebook(each) && each.node.contains(target)) ?? null;
  }

  private _entries: readonly IRunEntry[] = [];
}

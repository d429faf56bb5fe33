import { MimeData } from '@lumino/coreutils';
import { Drag } from '@lumino/dragdrop';
import { followPointer } from '../../charts/follow-pointer';

/** What JupyterLab's notebooks take. */
const CELLS = 'application/vnd.jupyter.cells';
const START_PIXELS = 5;

/** A view that may be dragged into a notebook. */
export interface IDraggable {
  /** What the image under the pointer says. */
  readonly label: string;
  /** Told when it is no click any more. */
  begun(): void;
  /** Code of the cell, once it is known what it is dropped on. */
  code(target: Element | null): string;
}

/**
 * Drag a view as a notebook cell, once the pointer has moved a little; until then it may still be a click.
 *
 * @param down - The pointer's going down on what can be dragged.
 */
export function dragView(down: PointerEvent, what: IDraggable): void {
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

import type { IPointed } from '../../store/run-link';
import type { IMark, IMoved } from '../shared/content';
import type { ILinkedMarks } from '../mount/linked';
import type { ITip } from '../mount/tooltip';
import { MomentPane } from './pane';

/** A pane that shows something else than a chart: nothing to point at. */
export abstract class BodyPane extends MomentPane {
  pointedBy(): IPointed {
    return { step: null, layer: null };
  }

  marksOf(): ILinkedMarks {
    return { marks: [] };
  }

  protected probe(): IMark | null {
    return null;
  }

  protected tipOf(): ITip | null {
    return null;
  }

  protected move(): IMoved | null {
    return null;
  }
}

import type { IPlace } from '../../charts';
import type { IPointed } from '../../store/run-link';
import type { IMark, IMoved } from './content';
import type { ILinkedMarks } from './links';
import type { ITip } from './tip';

/** What a picture's places mean; see `Pictured`. */
export interface IPictured {
  probe(place: IPlace): IMark | null;
  tipOf(mark: IMark): ITip | null;
  move(key: string): IMoved | null;
  pointedBy?(mark: IMark): IPointed;
  marksOf?(at: IPointed): ILinkedMarks;
}

/** What answers for the places of a picture. Unless it says otherwise it has its picture do so. */
export abstract class Pictured implements IPictured {
  /** The picture that answers for its places; null where the view does, or there is nothing to point at. */
  protected get drawn(): IPictured | null {
    return null;
  }

  /** What is under the pointer. */
  probe(place: IPlace): IMark | null {
    return this.drawn?.probe(place) ?? null;
  }

  /** What to say of a mark as the data are now; null when it is gone. */
  tipOf(mark: IMark): ITip | null {
    return this.drawn?.tipOf(mark) ?? null;
  }

  /** Answer a key; null when it means nothing here. */
  move(key: string): IMoved | null {
    return this.drawn?.move(key) ?? null;
  }

  /** What one of the view's own marks points at. */
  pointedBy(mark: IMark): IPointed {
    return this.drawn?.pointedBy?.(mark) ?? { step: null, layer: null };
  }

  /** What the view shows of something that another view points at. */
  marksOf(at: IPointed): ILinkedMarks {
    return this.drawn?.marksOf?.(at) ?? { marks: [] };
  }
}

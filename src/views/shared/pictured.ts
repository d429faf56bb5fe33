import type { IPlace } from '../../charts';
import type { IPointed } from '../../store/run-link';
import type { IMark, IMoved } from './content';
import type { ILinkedMarks } from './links';
import type { ITip } from './tip';

/** What a picture's places mean; see `ViewModel`. */
export interface IPictured {
  probe(place: IPlace): IMark | null;
  tipOf(mark: IMark): ITip | null;
  move(key: string): IMoved | null;
  pointedBy?(mark: IMark): IPointed;
  marksOf?(at: IPointed): ILinkedMarks;
}

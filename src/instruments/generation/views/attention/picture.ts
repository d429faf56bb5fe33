import type { IContent, IMark } from '../../../../views/shared/content';
import type { Control } from '../../../../views/shared/control';
import type { IPictured } from '../../../../views/shared/view-model';
import type { IAttentionText } from './attention-text';

/** What a picture of attention is asked to draw. */
export interface IAttentionDrawing {
  readonly text: IAttentionText;
  /** Layers and heads, ascending; at least one of each. */
  readonly layers: readonly number[];
  readonly heads: readonly number[];
  /** Position that is looked at: the newest that was read where none is chosen; null where there is none. */
  readonly position: number | null;
  /** Whether it was chosen, here or in another view. */
  readonly isChosen: boolean;
  /** Step that was asked for; null follows the newest. */
  readonly step: number | null;
}

/** One kind of picture of attention: what it draws, and what its places mean. */
export interface IAttentionPicture extends IPictured {
  draw(request: IAttentionDrawing): IContent;
  controls(): Control[];
  clicked(mark: IMark): void;
  insight(): IMark | null;
  pinned?(): IMark | null;
  /** What belongs to a mark, such as the row of a cell. */
  bandOf?(mark: IMark): IMark | null;
}
